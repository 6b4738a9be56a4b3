"""The coverage command: which parts of accounts and conversations are stored, under way, or missing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import argument, flag, option
from mistnet.cli.output import Block, Grid, at, document, fields_of, last_line
from mistnet.cli.status import refused_blocks
from mistnet.kit.errors import did_you_mean
from mistnet.kit.text import LARGEST_ID, are, counted
from mistnet.social.accounts import AccountState, FetchRules, FetchStats, next_limit
from mistnet.social.coverage import (
    AccountProgress,
    Completeness,
    Conversation,
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
from mistnet.social.model import PostId, UserId, read_handle
from mistnet.social.store.accounts import fetch_stats
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.quarantine import Quarantine
from mistnet.social.store.tracking import Refusals, TrackingStore
from mistnet.social.tracking import repair_sweeps

_CELLS: Final = 60
_FEW_CELLS: Final = 15
_SHOWN_PARENTS: Final = 20
_STRETCHES: Final = {
    StretchState.VERIFIED: ("█", "#", "verified"),
    StretchState.SWEEPING: ("▒", "~", "being swept"),
    StretchState.MISSING: ("✗", "!", "missing"),
    StretchState.SUSPECT: ("?", "?", "suspect"),
    StretchState.NOT_LOOKED_AT: ("·", ".", "not looked at yet"),
}
"""How each is drawn on a terminal and elsewhere, and what it is called."""

_SHOWN_HANDLES: Final = 20
_WHY_COUNTS_DIFFER: Final = (
    "the profile's own number counts native retweets and posts that search hides; it leaves out posts that were "
    "deleted after they were stored here"
)


class StripStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How strips are drawn: at which time, with which marks, and whether native retweets are collected."""

    now: datetime
    fine: bool
    with_reposts: bool

    @property
    def marks(self) -> Mapping[StretchState, str]:
        return {state: fine if self.fine else plain for state, (fine, plain, _) in _STRETCHES.items()}

    @property
    def legend(self) -> str:
        return ", ".join(f"{mark} {_STRETCHES[state][-1]}" for state, mark in self.marks.items())

    def strip(self, stretches: Sequence[Stretch], cells: int) -> str:
        marks = self.marks
        return "".join(marks[each] for each in strip(stretches, cells))


def accounts_blocks(accounts: Sequence[AccountProgress], style: StripStyle, requested: Sequence[str]) -> list[Block]:
    """`requested` are handles whose profiles were not looked up yet."""
    grid = Grid.of(
        accounts,
        "account, state, coverage, stored, profile, gaps",
        account=lambda each: f"@{each.handle or each.user_id}",
        state=lambda each: f"{each.state}, suspect" if is_suspect(each) else str(each.state),
        coverage=lambda each: style.strip(own_posts(each, style.now), _FEW_CELLS) if was_collected(each) else "",
        stored=lambda each: "waits to begin" if each.waits else f"{each.stored:,}",
        profile=lambda each: f"{each.posts_count:,}" if each.posts_count is not None else "",
        gaps=lambda each: len(each.gaps) or None,
        empty="no account is tracked: `mistnet track @handle` tracks one",
    )
    shown: list[Block] = [grid] if accounts or not requested else []
    if accounts:
        shown.append(style.legend)
    if requested:
        named = ", ".join(f"@{handle}" for handle in requested[:_SHOWN_HANDLES])
        more = f" and {len(requested) - _SHOWN_HANDLES:,} more" if len(requested) > _SHOWN_HANDLES else ""
        shown.append(f"requested, not looked up yet: {named}{more}")
    return shown


def account_blocks(progress: AccountProgress, style: StripStyle, *, own_reposts: int) -> list[Block]:
    own = own_posts(progress, style.now)
    reposted = style.strip(reposts(progress, style.now), _CELLS) if style.with_reposts else "off: see x_reposts"
    reason = f": {progress.state_reason}" if progress.state_reason else ""
    paused = "" if progress.state is AccountState.ACTIVE else ", not collected now"
    first, last = f"{begin_of(progress):%Y-%m-%d}", f"{style.now:%Y-%m-%d}"
    strips = [
        f"@{progress.handle or progress.user_id} ({progress.state}{reason}{paused})",
        f"own posts        {style.strip(own, _CELLS)}",
        f"native retweets  {reposted}",
        f"{'':17}{first}{last.rjust(_CELLS - len(first))}",
        style.legend,
    ]
    if is_suspect(progress):
        again = f"; it is checked again at {at(progress.next_look_at)}" if progress.next_look_at else ""
        suspicion = f"{few_stored(progress)}, although its history was read to the end{again}"
        strips.append(f"suspect since {at(progress.suspect_since)}: {suspicion}; --repair reads all of it again")
    stretches = Grid(
        title="own posts",
        columns=("from (UTC)", "until", ""),
        rows=[(each.since, each.until, _STRETCHES[each.standing][-1]) for each in own],
    )
    gaps = Grid.of(
        progress.gaps,
        "job, kind, state, what went wrong",
        job="job_id",
        what_went_wrong=lambda each: last_line(each.last_error),
        heading="failed sweeps (--repair retries them)",
        empty="no sweep failed",
    )
    counts = (
        f"{counted(progress.stored, 'post')} {are(progress.stored)} stored, {own_reposts:,} of them native retweets; "
    )
    if progress.posts_count is None:
        counts += "the profile gives no number"
    else:
        counts += f"the profile says {progress.posts_count:,} (as of {at(progress.profiled_at)}):\n{_WHY_COUNTS_DIFFER}"
    return ["\n".join(strips), stretches, gaps, counts]


def unread_line(count: int) -> list[str]:
    return [f"{counted(count, 'payload')} in quarantine: `mistnet doctor --reparse` tries again"] if count else []


def conversation_blocks(conversation: Conversation) -> list[Block]:
    verdict: str = conversation.verdict
    if conversation.verdict is Completeness.AS_FAR_AS_UPSTREAM:
        verdict = f"{verdict} ({sum(parent.gone for parent in conversation.parents):,} gone)"
    dead = [walk for walk in conversation.walks if not walk.alive]
    live = len(conversation.walks) - len(dead)
    counts = (
        f"{counted(conversation.posts, 'post')} {are(conversation.posts)} stored, "
        f"{counted(live, 'walk')} {are(live)} under way, {len(dead):,} failed"
    )
    # Gaps first: they are what an operator can do something about.
    missing = sorted(conversation.parents, key=lambda each: (not each.gap, each.post_id))[:_SHOWN_PARENTS]
    rows = []
    for each in missing:
        state = "a walk will fetch it" if each.awaited else "a gap: no job fetches it"
        if each.gone:
            state = "the source does not have it"
        rows.append((each.post_id, each.reply_id, f"{each.replies:,}", state))
    grid = Grid(
        title="missing posts that have replies",
        columns=("post", "answered by", "replies", ""),
        rows=rows,
        empty="every post that has replies is stored",
    )
    hints = []
    if dead:
        hints.append(f"the last walk failed with: {last_line(dead[-1].last_error)}")
        hints.append("`mistnet jobs requeue --kind walk` retries walks")
    if conversation.verdict is Completeness.HAS_GAPS:
        hints.append("`mistnet hydrate posts ID` fetches a missing post")
    return [f"conversation {conversation.conversation_id}: {verdict}\n{counts}", grid, *hints]


HAS_GAPS: Final = 3


@shared_options
async def coverage(
    invocation: Invocation,
    handle: Annotated[str | None, argument("[@HANDLE]", "One account; without it, all of them.")] = None,
    *,
    conversation: Annotated[
        int | None,
        option("--conversation", "ID", "A conversation, by the id of its first post.", min=1, max=LARGEST_ID),
    ] = None,
    repair: Annotated[bool, flag("--repair", "Retry failed sweeps, and start missing ones.")] = False,
) -> int:
    """Show what is verified, what is being swept and what is missing.

    Exit code 3 if a conversation has gaps.
    """
    if conversation is not None and (handle is not None or repair):
        raise typer.BadParameter("--conversation goes with neither a handle nor --repair")
    async with open_app(invocation.settings) as app:
        if conversation is None:
            if handle is not None:
                await _account(invocation, app, read_handle(handle), repair=repair)
            else:
                await _accounts(invocation, app, repair=repair)
            return 0
        reader, root = Coverage(app.database), PostId(conversation)
        found = await reader.conversation(root, await reader.platform_of(root))
        if not found.posts and not found.walks:
            belongs_to = await reader.conversation_of(root)
            hint = f"; post {root} belongs to conversation {belongs_to}" if belongs_to else ""
            raise typer.BadParameter(f"nothing is stored of a conversation {root}{hint}", param_hint="--conversation")
    shown = document(
        conversation_id=root,
        verdict=found.verdict,
        posts=found.posts,
        missing_parents=found.parents,
        live_walks=sum(walk.alive for walk in found.walks),
        dead_walks=[{"job_id": each.job_id, "error": each.last_error} for each in found.walks if not each.alive],
    )
    invocation.out.show(shown, *conversation_blocks(found))
    return HAS_GAPS if found.verdict is Completeness.HAS_GAPS else 0


async def _accounts(invocation: Invocation, app: App, *, repair: bool) -> None:
    reader = Coverage(app.database)
    accounts = await reader.accounts()
    done = [each for account in accounts for each in await repair_sweeps(app, account)] if repair else []
    # A repair starts jobs, which the accounts show.
    if done:
        accounts = await reader.accounts()
    stats = await fetch_stats(app.database)
    unread = await Quarantine(app.database).count()
    refused = await Refusals(app.database).list()
    suggestions = await TrackingStore(app.database, app.job_writer).suggestions()
    requested = [each.handle for each in suggestions]
    invocation.out.show(
        document(
            accounts=[_account_document(each, stats) for each in accounts],
            asked_for=requested,
            refused=refused,
            quarantined=unread,
            repaired=done,
        ),
        *accounts_blocks(accounts, _style(invocation, app), requested),
        *refused_blocks(refused),
        *unread_line(unread),
        *_repair_lines(done, repair=repair),
    )


async def _account(invocation: Invocation, app: App, handle: str, *, repair: bool) -> None:
    reader, style = Coverage(app.database), _style(invocation, app)
    progress = await _progress(reader, app, handle)
    done = await repair_sweeps(app, progress) if repair else []
    if done:
        progress = await _progress(reader, app, handle)
    own_reposts = await reader.native_reposts(progress.user_id)
    unread = await Quarantine(app.database).naming(progress.user_id)
    stats = await fetch_stats(app.database)
    fetches, own = [], stats.get(progress.user_id)
    if own is not None and own.total_fetches:
        last = f"the last fetched {counted(own.last_fetched_count, 'post')}, {own.last_new_count:,} of them new"
        rate = f"about {own.expected(FetchRules()):,.0f} new on average"
        rounds = f"rounds of catch-ups and runs: {own.total_fetches:,}"
        fetches = [f"{rounds}; {last}; {rate}; the next may fetch {next_limit(own)}"]
    invocation.out.show(
        document(
            account=_account_document(progress, stats),
            own_posts=own_posts(progress, style.now),
            native_retweets=reposts(progress, style.now) if style.with_reposts else None,
            stored={"all": progress.stored, "native_retweets": own_reposts, "others": progress.stored - own_reposts},
            quarantined=unread,
            repaired=done,
        ),
        *account_blocks(progress, style, own_reposts=own_reposts),
        *fetches,
        *unread_line(unread),
        *_repair_lines(done, repair=repair),
    )


def _style(invocation: Invocation, app: App) -> StripStyle:
    return StripStyle(
        now=app.database.clock.now(), fine=invocation.out.on_terminal, with_reposts=app.settings.x_reposts
    )


def _repair_lines(done: Sequence[str], *, repair: bool) -> Sequence[str]:
    return done or (["nothing to repair"] if repair else [])


async def _progress(reader: Coverage, app: App, handle: str) -> AccountProgress:
    progress = await reader.account(handle)
    if progress is not None:
        return progress
    refused = await Refusals(app.database).of_handle(handle)
    if refused is not None:
        why = f"It was refused at {at(refused.refused_at)} UTC: {refused.reason}."
        raise typer.BadParameter(f"@{handle} is not tracked. {why} `mistnet track @{handle}` tries again")
    now_called = await reader.now_called(handle)
    renamed = f" Its handle is @{now_called} now." if now_called else did_you_mean(handle, await reader.handles())
    raise typer.BadParameter(f"@{handle} is not tracked.{renamed} Track it with `mistnet track @{handle}`")


def _account_document(progress: AccountProgress, stats: Mapping[UserId, FetchStats]) -> dict[str, object]:
    fetch = stats.get(progress.user_id, FetchStats())
    return {
        **fields_of(progress, "sweeps"),
        "fetch": fetch,
        "next_limit": next_limit(fetch),
        "live_sweeps": [{"job_id": each.job_id, "kind": each.kind} for each in progress.sweeps if each.alive],
        "gaps": [
            {"job_id": each.job_id, "kind": each.kind, "state": each.state, "error": each.last_error}
            for each in progress.gaps
        ],
    }
