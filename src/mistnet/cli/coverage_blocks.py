"""How coverage is shown: strips, what they mean, counts and verdicts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from mistnet.cli.output import Block, Grid, at, last_line
from mistnet.domain.accounts import AccountState
from mistnet.domain.coverage import (
    Completeness,
    Conversation,
    Parent,
    Progress,
    Standing,
    Stretch,
    begin_of,
    few_stored,
    is_suspect,
    own_posts,
    reposts,
    strip,
    was_collected,
)
from mistnet.domain.plural import are, counted

_CELLS: Final = 60
_FEW_CELLS: Final = 15
_SHOWN_PARENTS: Final = 20
_FINE: Final = {
    Standing.VERIFIED: "█",
    Standing.SWEEPING: "▒",
    Standing.MISSING: "✗",
    Standing.SUSPECT: "?",
    Standing.NOT_LOOKED_AT: "·",
}
_PLAIN: Final = {
    Standing.VERIFIED: "#",
    Standing.SWEEPING: "~",
    Standing.MISSING: "!",
    Standing.SUSPECT: "?",
    Standing.NOT_LOOKED_AT: ".",
}
_MEANING: Final = {
    Standing.VERIFIED: "verified",
    Standing.SWEEPING: "being swept",
    Standing.MISSING: "missing",
    Standing.SUSPECT: "suspect",
    Standing.NOT_LOOKED_AT: "not looked at yet",
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
    def marks(self) -> Mapping[Standing, str]:
        return _FINE if self.fine else _PLAIN

    @property
    def legend(self) -> str:
        return ", ".join(f"{self.marks[each]} {said}" for each, said in _MEANING.items())

    def strip(self, stretches: Sequence[Stretch], cells: int) -> str:
        return "".join(self.marks[each] for each in strip(stretches, cells))


def accounts_blocks(found: Sequence[Progress], view: View, asked_for: Sequence[str]) -> list[Block]:
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


def account_blocks(progress: Progress, view: View, *, own_reposts: int) -> list[Block]:
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


def _suspicion(progress: Progress) -> str:
    again = f"; it is looked at again at {at(progress.next_look_at)}" if progress.next_look_at else ""
    return (
        f"suspect since {at(progress.suspect_since)}: {few_stored(progress)}, although its history was read to the end"
        f"{again}; --repair reads all of it again"
    )


def unread_line(count: int) -> list[str]:
    one = "1 payload" if count == 1 else f"{count:,} payloads"
    return [f"{one} in quarantine: `mistnet doctor --reparse` tries again"] if count else []


def _state(progress: Progress) -> str:
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


def _gaps_grid(progress: Progress) -> Grid:
    return Grid(
        title="sweeps that ended without their result (--repair tries them anew)",
        columns=("job", "kind", "state", "what went wrong"),
        rows=[(str(each.job_id), each.kind, each.state, last_line(each.last_error)) for each in progress.gaps],
        empty="no sweep ended without its result",
    )


def _counts(progress: Progress, own_reposts: int) -> str:
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


def _fate(parent: Parent) -> str:
    if parent.gone:
        return "upstream does not have it"
    return "a walk will bring it" if parent.awaited else "a gap: nobody is fetching it"
