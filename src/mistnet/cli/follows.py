"""Commands for follows: sync the followers and followings of a user, list them, and show how they changed."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import BeforeOption, FileOption, argument, flag, option, read_users, unique
from mistnet.cli.output import KEY_HINT, Grid, Output, at, complain, document, last_line, next_page
from mistnet.graph.follows.listing import Follows
from mistnet.graph.follows.model import Side, SyncMode
from mistnet.kit.text import LARGEST_ID
from mistnet.operations.runs.model import NeedsConfirmation
from mistnet.queue.errors import WorkError
from mistnet.sources.x.client import format_dollars
from mistnet.sources.x.follows import RequestedSync, Subject, ask_for_syncs, known_subject, look_up_counts, subject_of
from mistnet.sources.x.quotes import FollowBill, quote_follows

ASKED_BY: Final = "command line"


class Sides(StrEnum):
    """One or both of a user's lists."""

    FOLLOWERS = "followers"
    FOLLOWINGS = "followings"
    BOTH = "both"

    @property
    def each(self) -> Sequence[Side]:
        return list(Side) if self is Sides.BOTH else [Side(self.value)]


Who = Annotated[str, argument("USER", "@name, name, https://x.com/name, or a user id.")]
MaxCredits = Annotated[
    int | None, option("--max-credits", "N", "Stop when this many credits are spent.", min=1, max=LARGEST_ID)
]
Users = Annotated[
    list[str] | None, argument("[USER]...", "@name, name, https://x.com/name, or a user id; separate by commas.")
]
Limit = Annotated[int, option("--limit", "N", "How many at most.", min=1, max=10_000)]
After = Annotated[int, option("--after", "ID", "Only ids after this one: the next page.", min=0, max=LARGEST_ID)]


@shared_options
async def sync(
    invocation: Invocation,
    who: Users = None,
    *,
    source: FileOption = None,
    side: Annotated[Sides, option("--side", None, "Which list.")] = Sides.BOTH,
    full: Annotated[bool, flag("--full", "Read the whole list; only this finds who left.")] = False,
    quote: Annotated[
        bool, flag("--quote", "Only show the likely cost; reads the profile at most (18 credits).")
    ] = False,
    yes: Annotated[bool, flag("--yes", "Also if it costs more than `confirm_credits`.")] = False,
    max_credits: MaxCredits = None,
) -> int:
    """Read who follows a user and whom they follow. Workers do it, a page of 200 per step.

    Without --full, reads the newest first until nothing is new; the first sync of a list always reads all of it. A sync
    that is likely to cost more than `confirm_credits` needs --yes or --max-credits. It stops at its cap, as
    `follows status` then shows.
    """
    mode = SyncMode.FULL if full else SyncMode.INCREMENTAL
    named = read_users(who, source, spoilt="nothing was requested")
    async with open_app(invocation.settings) as app:
        try:
            subjects = unique([await subject_of(app, each) for each in named])
            for subject in subjects:
                await look_up_counts(app, subject.user_id)
        except WorkError as error:
            complain(f"{error}; nothing was requested", app.secrets)
            return 1
        bills = [await quote_follows(app, subject.user_id, side.each, mode) for subject in subjects]
        if quote:
            users = [_user(subject, bill) for subject, bill in zip(subjects, bills, strict=True)]
            lines = [_bill_lines(subject, bill) for subject, bill in zip(subjects, bills, strict=True)]
            invocation.out.show(_document(mode, users), *lines, "Nothing is read yet: leave out --quote to begin.")
            return 0
        # Lists that are cheap one by one may be expensive together.
        likely, threshold = sum(bill.credits or 0 for bill in bills), bills[0].confirm_credits
        if likely > threshold and not yes and max_credits is None:
            raise NeedsConfirmation(likely, threshold)
        # Each user has an equal share: the first large list must not leave nothing for the others.
        share = None if max_credits is None else max(max_credits // len(subjects), 1)
        syncs = [
            await ask_for_syncs(
                app, subject.user_id, side.each, mode, asked_by=ASKED_BY, confirmed=yes, max_credits=share
            )
            for subject in subjects
        ]
        hints = [] if app.settings.x_api_key else [KEY_HINT]
    requested = list(zip(subjects, bills, syncs, strict=True))
    # A live sync is shared, whatever its mode.
    already = "are being read already" + (": if not in full, sync again when that is over" if full else "")
    lines = [
        line
        for subject, bill, own in requested
        for line in (
            "\n".join(f"the {each.side} of {subject} {'will be read' if each.created else already}" for each in own),
            f"next: `mistnet follows status {subject.user_id}` shows the progress",
            _bill_lines(subject, bill),
        )
    ]
    invocation.out.show(_document(mode, [_user(*each) for each in requested]), *lines, *hints)
    return 0


def _document(mode: SyncMode, users: Sequence[Mapping[str, Any]]) -> Any:
    """A single user's fields are also at the top."""
    return document(mode=mode, users=users, **(users[0] if len(users) == 1 else {}))


def _user(subject: Subject, bill: FollowBill, syncs: Sequence[RequestedSync] | None = None) -> Mapping[str, Any]:
    return {
        "user_id": subject.user_id,
        "handle": subject.handle,
        **({} if syncs is None else {"syncs": syncs}),
        "quotes": bill.quotes,
        "credits": bill.credits,
        "confirm_credits": bill.confirm_credits,
    }


def _bill_lines(subject: Subject, bill: FollowBill) -> str:
    lines = [
        f"the {each.side} of {subject}: {each.users:,} users, about {each.credits:,} credits"
        if each.users is not None
        else f"the {each.side} of {subject}: their number is not known yet, so the price is not either"
        for each in bill.quotes
    ]
    if bill.credits is not None:
        lines.append(f"about {bill.credits:,} credits ({format_dollars(bill.credits)}) in all")
    return "\n".join(lines)


@app_command
async def list_follows(
    app: App,
    out: Output,
    who: Who,
    *,
    side: Annotated[Side, option("--side", None, "Which list.")] = Side.FOLLOWERS,
    ended: Annotated[bool, flag("--ended", "Users who have left the list.")] = False,
    after: After = 0,
    limit: Limit = 50,
) -> None:
    """Show who follows a user, or whom they follow, by id."""
    subject, stored = await known_subject(app, who), Follows(app.database)
    counts = await stored.counts(subject.user_id, side)
    known = (await stored.known_since(subject.user_id)).get(side)
    page = await stored.page(subject.user_id, side, ended=ended, after=after, limit=limit)
    facts = document(
        user_id=subject.user_id,
        handle=subject.handle,
        side=side,
        live=counts.live,
        doubted=counts.doubted,
        ended=counts.ended,
        known_since=known,
        users=page.items,
        next_after=page.next,
    )
    grid = Grid.of(
        page.items,
        "id, handle, name, first seen (UTC), last seen (UTC), note",
        id="user_id",
        handle=lambda each: f"@{each.handle}" if each.handle else None,
        note=lambda each: f"ended {at(each.ended_at)}" if each.ended_at else "doubted" if each.doubted else None,
        empty="no users; `mistnet follows sync` reads the list",
    )
    doubted = f", {counts.doubted:,} of them doubted since a sync missed them" if counts.doubted else ""
    head = f"{side} of {subject}: {counts.live:,}{doubted}; {counts.ended:,} ended; {_known(known)}"
    out.show(facts, head, grid, *next_page(page.next, "--after"))


@app_command
async def events(app: App, out: Output, who: Who, *, before: BeforeOption = None, limit: Limit = 50) -> None:
    """Show how both lists of a user changed, the latest first, with the cause if it is known."""
    subject, stored = await known_subject(app, who), Follows(app.database)
    page = await stored.events(subject.user_id, before=before, limit=limit)
    known = await stored.known_since(subject.user_id)
    facts = document(
        user_id=subject.user_id,
        handle=subject.handle,
        known_since={str(side): known.get(side) for side in Side},
        events=page.items,
        next_before=page.next,
    )
    grid = Grid.of(
        page.items,
        "event, at (UTC), who, what, whom, cause",
        event="id",
        who=lambda each: f"@{each.follower_handle or each.follower_id}",
        what="kind",
        whom=lambda each: f"@{each.followed_handle or each.followed_id}",
        empty=f"no known changes around {subject}",
    )
    since = "; ".join(f"{side} {_known(known.get(side))}" for side in Side)
    out.show(facts, grid, *next_page(page.next), since)


@app_command
async def status(
    app: App,
    out: Output,
    who: Annotated[str | None, argument("[USER]", "Only this user.")] = None,
    *,
    limit: Limit = 50,
) -> None:
    """Show how the latest sync of each list went: how many it saw, whether the result is plausible, and why not."""
    await app.settle_ingests()
    subject = await known_subject(app, who) if who else None
    syncs = await Follows(app.database).syncs(user_id=subject.user_id if subject else None, limit=limit)
    grid = Grid.of(
        syncs,
        "user, side, mode, status, believed, seen, begun (UTC), finished (UTC), note",
        user=lambda each: f"@{each.handle}" if each.handle else each.user_id,
        believed=lambda each: None if each.plausible is None else "yes" if each.plausible else "no",
        seen=lambda each: f"{each.items:,}",
        begun="started_at",
        note=lambda each: last_line(each.waits if each.finished_at is None and each.waits else each.problem),
        empty="no list was read yet: run `mistnet follows sync USER`",
    )
    out.show(document(syncs=syncs), grid)


def _known(since: datetime | None) -> str:
    """Since when changes of a list are known."""
    return f"known since {at(since)} UTC" if since else "not read in full yet"
