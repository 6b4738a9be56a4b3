"""The coverage command: what is there of accounts and conversations, what is on its way, and what is missing."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.coverage_blocks import View, account_blocks, accounts_blocks, conversation_blocks, unread_line
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import at, document
from mistnet.cli.refused import refused_blocks
from mistnet.cli.shared import Invocation, shared_options
from mistnet.desk.repair import repaired
from mistnet.domain.coverage import Completeness, Progress, own_posts, reposts
from mistnet.domain.errors import did_you_mean
from mistnet.domain.fetching import FetchRules, FetchStats, next_limit
from mistnet.domain.handles import read_handle
from mistnet.domain.plural import counted
from mistnet.domain.social import PostId, UserId
from mistnet.store.coverage import Coverage
from mistnet.store.fetching import fetch_stats
from mistnet.store.quarantine import Quarantine
from mistnet.store.refusals import Refusals
from mistnet.store.roster import Roster

HAS_GAPS: Final = 3


@shared_options
async def coverage(
    invocation: Invocation,
    handle: Annotated[
        str | None, typer.Argument(metavar="[@HANDLE]", help="One account; without it, all of them.")
    ] = None,
    *,
    conversation: Annotated[
        int | None,
        typer.Option(
            "--conversation", min=1, max=LARGEST_ID, metavar="ID", help="A conversation, by the id of its first post."
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Try sweeps anew that ended without their result, and begin lacking ones.")
    ] = False,
) -> int:
    """Show what is verified, what is being swept and what is missing.

    Exit code 3 if a conversation has gaps.
    """
    if conversation is not None and (handle is not None or repair):
        raise typer.BadParameter("--conversation stands alone: leave out the handle and --repair")
    async with open_app(invocation.settings) as app:
        if conversation is not None:
            return await _conversation(invocation, app, PostId(conversation))
        if handle is not None:
            await _account(invocation, app, read_handle(handle), repair=repair)
        else:
            await _accounts(invocation, app, repair=repair)
    return 0


async def _accounts(invocation: Invocation, app: App, *, repair: bool) -> None:
    reader, now = Coverage(app.database), app.database.clock.now()
    done: list[str] = []
    if repair:
        for each in await reader.accounts():
            done += await repaired(app, each)
    found = await reader.accounts()
    stats = await fetch_stats(app.database)
    unread = await Quarantine(app.database).count()
    refused = await Refusals(app.database).standing()
    asked_for = [each.handle for each in await Roster(app.database, app.job_writer).suggestions()]
    shown = document(
        accounts=[_fields(each, stats) for each in found],
        asked_for=asked_for,
        refused=refused,
        quarantined=unread,
        repaired=done,
    )
    said = done or (["nothing to repair"] if repair else [])
    view = View(now=now, fine=invocation.out.on_terminal, with_reposts=app.settings.x_reposts)
    listed = [*accounts_blocks(found, view, asked_for), *refused_blocks(refused)]
    invocation.out.show(shown, *listed, *unread_line(unread), *said)


async def _account(invocation: Invocation, app: App, handle: str, *, repair: bool) -> None:
    reader, now = Coverage(app.database), app.database.clock.now()
    found = await _known(reader, app, handle)
    done = await repaired(app, found) if repair else []
    if done:
        found = await _known(reader, app, handle)
    own_reposts = await reader.native_reposts(found.user_id)
    unread = await Quarantine(app.database).naming(found.user_id)
    stats = await fetch_stats(app.database)
    shown = document(
        account=_fields(found, stats),
        own_posts=own_posts(found, now),
        native_retweets=reposts(found, now) if app.settings.x_reposts else None,
        stored={"all": found.stored, "native_retweets": own_reposts, "others": found.stored - own_reposts},
        quarantined=unread,
        repaired=done,
    )
    said = done or (["nothing to repair"] if repair else [])
    view = View(now=now, fine=invocation.out.on_terminal, with_reposts=app.settings.x_reposts)
    told = account_blocks(found, view, own_reposts=own_reposts)
    invocation.out.show(shown, *told, *_fetch_line(stats.get(found.user_id)), *unread_line(unread), *said)


async def _known(reader: Coverage, app: App, handle: str) -> Progress:
    found = await reader.account(handle)
    if found is not None:
        return found
    refused = await Refusals(app.database).of_handle(handle)
    if refused is not None:
        why = f"It was refused at {at(refused.refused_at)} UTC: {refused.reason}."
        raise typer.BadParameter(f"@{handle} is not tracked. {why} `mistnet track @{handle}` tries again")
    now_called = await reader.now_called(handle)
    renamed = f" It goes by @{now_called} now." if now_called else did_you_mean(handle, await reader.handles())
    raise typer.BadParameter(f"@{handle} is not tracked.{renamed} `mistnet track @{handle}` begins to")


async def _conversation(invocation: Invocation, app: App, conversation_id: PostId) -> int:
    reader = Coverage(app.database)
    found = await reader.conversation(conversation_id, await reader.platform_of(conversation_id))
    if not found.posts and not found.walks:
        await _refuse_unknown(reader, conversation_id)
    shown = document(
        conversation_id=str(conversation_id),
        verdict=found.verdict,
        posts=found.posts,
        missing_parents=[
            {
                "post_id": str(each.post_id),
                "reply_id": str(each.reply_id),
                "replies": each.replies,
                "gone": each.gone,
                "awaited": each.awaited,
            }
            for each in found.parents
        ],
        live_walks=sum(walk.alive for walk in found.walks),
        dead_walks=[{"job_id": walk.job_id, "error": walk.last_error} for walk in found.walks if not walk.alive],
    )
    invocation.out.show(shown, *conversation_blocks(found))
    return HAS_GAPS if found.verdict is Completeness.HAS_GAPS else 0


async def _refuse_unknown(reader: Coverage, post_id: PostId) -> None:
    belongs_to = await reader.conversation_of(post_id)
    hint = f"; post {post_id} belongs to conversation {belongs_to}" if belongs_to else ""
    raise typer.BadParameter(f"nothing is stored of a conversation {post_id}{hint}", param_hint="--conversation")


def _fetch_line(stats: FetchStats | None) -> list[str]:
    if stats is None or not stats.total_fetches:
        return []
    last = f"the last fetched {counted(stats.last_fetched_count, 'post')}, {stats.last_new_count:,} of them new"
    rate = f"about {stats.expected(FetchRules()):,.0f} new on average"
    fetches = f"rounds of catch-ups and runs: {stats.total_fetches:,}"
    return [f"{fetches}; {last}; {rate}; the next may fetch {next_limit(stats)}"]


def _fields(progress: Progress, stats: Mapping[UserId, FetchStats]) -> dict[str, object]:
    fetch = stats.get(progress.user_id, FetchStats())
    ids = ("user_id", "oldest_post_id", "newest_post_id", "newest_repost_id")
    told = {name: getattr(progress, name) for name in progress.__struct_fields__ if name != "sweeps"}
    told |= {name: str(told[name]) if told[name] is not None else None for name in ids}
    return {
        **told,
        "fetch": fetch,
        "next_limit": next_limit(fetch),
        "live_sweeps": [{"job_id": each.job_id, "kind": each.kind} for each in progress.sweeps if each.alive],
        "gaps": [
            {"job_id": each.job_id, "kind": each.kind, "state": each.state, "error": each.last_error}
            for each in progress.gaps
        ],
    }
