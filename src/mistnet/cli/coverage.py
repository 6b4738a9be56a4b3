"""The coverage command: what is there of accounts and conversations, what is on its way, and what is missing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import Block, Grid, at, document, last_line
from mistnet.cli.refused import refused_blocks
from mistnet.kit.errors import did_you_mean
from mistnet.kit.text import are, counted
from mistnet.social.accounts import AccountState
from mistnet.social.coverage.model import (
    AccountProgress,
    Completeness,
    Conversation,
    MissingParent,
    Stretch,
    StretchState,
    begin_of,
    few_stored,
    is_suspect,
    own_posts,
    reposts,
    strip,
    was_collected,
)
from mistnet.social.coverage.store import Coverage
from mistnet.social.fetch_sizes import FetchRules, FetchStats, next_limit
from mistnet.social.model import PostId, UserId, read_handle
from mistnet.social.store.fetch_sizes import fetch_stats
from mistnet.social.store.quarantine import Quarantine
from mistnet.social.store.tracking import Refusals, TrackingStore
from mistnet.social.tracking import repaired

_CELLS: Final = 60
_FEW_CELLS: Final = 15
_SHOWN_PARENTS: Final = 20
_FINE: Final = {
    StretchState.VERIFIED: "█",
    StretchState.SWEEPING: "▒",
    StretchState.MISSING: "✗",
    StretchState.SUSPECT: "?",
    StretchState.NOT_LOOKED_AT: "·",
}
_PLAIN: Final = {
    StretchState.VERIFIED: "#",
    StretchState.SWEEPING: "~",
    StretchState.MISSING: "!",
    StretchState.SUSPECT: "?",
    StretchState.NOT_LOOKED_AT: ".",
}
_MEANING: Final = {
    StretchState.VERIFIED: "verified",
    StretchState.SWEEPING: "being swept",
    StretchState.MISSING: "missing",
    StretchState.SUSPECT: "suspect",
    StretchState.NOT_LOOKED_AT: "not looked at yet",
}
_SHOWN_HANDLES: Final = 20
_WHY_COUNTS_DIFFER: Final = (
    "the profile's own number counts native retweets and posts that search hides; it leaves out posts that were "
    "deleted after they were stored here"
)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """When somebody looks, whether his terminal draws fine marks, and whether native retweets are wanted."""

    now: datetime
    fine: bool
    with_reposts: bool

    @property
    def marks(self) -> Mapping[StretchState, str]:
        return _FINE if self.fine else _PLAIN

    @property
    def legend(self) -> str:
        return ", ".join(f"{self.marks[each]} {said}" for each, said in _MEANING.items())

    def strip(self, stretches: Sequence[Stretch], cells: int) -> str:
        return "".join(self.marks[each] for each in strip(stretches, cells))


def accounts_blocks(found: Sequence[AccountProgress], view: View, asked_for: Sequence[str]) -> list[Block]:
    """`asked_for`: handles whose profile was not looked up yet, so that they are no accounts yet."""
    grid = Grid(
        columns=("account", "state", "coverage", "stored", "profile", "gaps"),
        rows=[
            (
                f"@{each.handle or each.user_id}",
                f"{each.state}, suspect" if is_suspect(each) else str(each.state),
                view.strip(own_posts(each, view.now), _FEW_CELLS) if was_collected(each) else "",
                "waits to begin" if each.waits else f"{each.stored:,}",
                f"{each.posts_count:,}" if each.posts_count is not None else "",
                str(len(each.gaps) or ""),
            )
            for each in found
        ],
        empty="no account is tracked: `mistnet track @handle` begins with one",
    )
    named = ", ".join(f"@{handle}" for handle in asked_for[:_SHOWN_HANDLES])
    more = f" and {len(asked_for) - _SHOWN_HANDLES:,} more" if len(asked_for) > _SHOWN_HANDLES else ""
    waiting = [f"asked for, and not looked up yet: {named}{more}"] if asked_for else []
    return [*([grid] if found or not asked_for else []), *([view.legend] if found else []), *waiting]


def account_blocks(progress: AccountProgress, view: View, *, own_reposts: int) -> list[Block]:
    own, reposted = own_posts(progress, view.now), reposts(progress, view.now)
    strips = [
        f"@{progress.handle or progress.user_id} ({_state(progress)})",
        f"own posts        {view.strip(own, _CELLS)}",
        f"native retweets  {view.strip(reposted, _CELLS) if view.with_reposts else 'not wanted: x_reposts is off'}",
        f"{'':17}{_axis(begin_of(progress), view.now)}",
        view.legend,
    ]
    if is_suspect(progress):
        strips.append(_suspicion(progress))
    return ["\n".join(strips), _stretches_grid(own), _gaps_grid(progress), _counts(progress, own_reposts)]


def _suspicion(progress: AccountProgress) -> str:
    again = f"; it is looked at again at {at(progress.next_look_at)}" if progress.next_look_at else ""
    return (
        f"suspect since {at(progress.suspect_since)}: {few_stored(progress)}, although its history was read to the end"
        f"{again}; --repair reads all of it again"
    )


def unread_line(count: int) -> list[str]:
    one = "1 payload" if count == 1 else f"{count:,} payloads"
    return [f"{one} in quarantine: `mistnet doctor --reparse` tries again"] if count else []


def _state(progress: AccountProgress) -> str:
    reason = f": {progress.state_reason}" if progress.state_reason else ""
    stays = "" if progress.state is AccountState.ACTIVE else ", not collected now"
    return f"{progress.state}{reason}{stays}"


def _axis(begin: datetime, now: datetime) -> str:
    first, last = f"{begin:%Y-%m-%d}", f"{now:%Y-%m-%d}"
    return first + last.rjust(_CELLS - len(first))


def _stretches_grid(stretches: Sequence[Stretch]) -> Grid:
    return Grid(
        title="own posts",
        columns=("from (UTC)", "until", ""),
        rows=[(at(each.since), at(each.until), _MEANING[each.standing]) for each in stretches],
    )


def _gaps_grid(progress: AccountProgress) -> Grid:
    return Grid(
        title="sweeps that ended without their result (--repair tries them anew)",
        columns=("job", "kind", "state", "what went wrong"),
        rows=[(str(each.job_id), each.kind, each.state, last_line(each.last_error)) for each in progress.gaps],
        empty="no sweep ended without its result",
    )


def _counts(progress: AccountProgress, own_reposts: int) -> str:
    stored = (
        f"{counted(progress.stored, 'post')} {are(progress.stored)} stored, {own_reposts:,} of them native retweets"
    )
    if progress.posts_count is None:
        return f"{stored}; the profile told no number"
    return (
        f"{stored}; the profile says {progress.posts_count:,} (as of {at(progress.profiled_at)}):\n{_WHY_COUNTS_DIFFER}"
    )


def conversation_blocks(found: Conversation) -> list[Block]:
    gone = sum(parent.gone for parent in found.parents)
    dead = [walk for walk in found.walks if not walk.alive]
    live = len(found.walks) - len(dead)
    verdict = f"{found.verdict} ({gone:,} gone)" if found.verdict is Completeness.AS_FAR_AS_UPSTREAM else found.verdict
    stored, walks = (f"{counted(many, one)} {are(many)}" for many, one in ((found.posts, "post"), (live, "walk")))
    counts = f"{stored} stored, {walks} under way, {len(dead):,} ended without their result"
    grid = Grid(
        title="posts that were answered and are not stored",
        columns=("post", "answered by", "replies", ""),
        rows=[
            (str(each.post_id), str(each.reply_id), f"{each.replies:,}", _fate(each))
            for each in sorted(found.parents, key=lambda each: (not each.gap, each.post_id))[:_SHOWN_PARENTS]
        ],
        empty="every post that was answered is stored",
    )
    hints = [f"the last walk ended with: {last_line(dead[-1].last_error)}"] if dead else []
    hints += ["`mistnet jobs requeue --kind walk` tries walks anew"] if dead else []
    hints += ["`mistnet hydrate posts ID` fetches a post that nobody is fetching"] if _has_gaps(found) else []
    return [f"conversation {found.conversation_id}: {verdict}\n{counts}", grid, *hints]


def _has_gaps(found: Conversation) -> bool:
    return found.verdict is Completeness.HAS_GAPS


def _fate(parent: MissingParent) -> str:
    if parent.gone:
        return "upstream does not have it"
    return "a walk will bring it" if parent.awaited else "a gap: nobody is fetching it"


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
    asked_for = [each.handle for each in await TrackingStore(app.database, app.job_writer).suggestions()]
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


async def _known(reader: Coverage, app: App, handle: str) -> AccountProgress:
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


def _fields(progress: AccountProgress, stats: Mapping[UserId, FetchStats]) -> dict[str, object]:
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
