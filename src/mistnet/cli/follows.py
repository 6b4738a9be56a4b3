"""Commands for follows: sync the followers and followings of a user, list them, and see who came and went."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import FileOption, read_users, unique
from mistnet.cli.output import Grid, at, document, last_line
from mistnet.graph.follows.listing import Follows, SyncLine, Tallied
from mistnet.graph.follows.model import FollowChange, FollowLine, Side, SyncMode
from mistnet.operations.errors import NeedsConfirmation
from mistnet.queue.errors import WorkError
from mistnet.sources.x.client import CREDITS_PER_DOLLAR
from mistnet.sources.x.follows import RequestedSync, Subject, ask_for_syncs, known_subject, look_up_counts, subject_of
from mistnet.sources.x.quotes import FollowBill, quote_follows

ASKED_BY: Final = "command line"
_LARGEST_ID: Final = 2**63 - 1


class Sides(StrEnum):
    """Which of a user's lists are meant."""

    FOLLOWERS = "followers"
    FOLLOWINGS = "followings"
    BOTH = "both"

    @property
    def each(self) -> Sequence[Side]:
        return list(Side) if self is Sides.BOTH else [Side(self.value)]


Who = Annotated[str, typer.Argument(metavar="USER", help="@name, name, https://x.com/name, or a user id.")]
MaxCredits = Annotated[
    int | None,
    typer.Option("--max-credits", min=1, max=_LARGEST_ID, metavar="N", help="Stop when so many credits are spent."),
]
Users = Annotated[
    list[str] | None,
    typer.Argument(metavar="[USER]...", help="@name, name, https://x.com/name, or a user id; commas may join them."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="How many at most.")]


@shared_options
async def sync(
    invocation: Invocation,
    who: Users = None,
    *,
    source: FileOption = None,
    side: Annotated[Sides, typer.Option("--side", help="Which list.")] = Sides.BOTH,
    full: Annotated[
        bool, typer.Option("--full", help="The whole list, not the newest part alone: only this finds who left.")
    ] = False,
    quote: Annotated[
        bool, typer.Option("--quote", help="Only tell the likely cost; asks for the profile at most (18 credits).")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Also if it costs more than `confirm_credits`.")] = False,
    max_credits: MaxCredits = None,
) -> int:
    """Read who follows a user and whom they follow. Workers do it, a page of 200 per step.

    Without --full, the newest first until nothing is new; the first sync of a list is always whole. One that is likely
    to cost more than `confirm_credits` needs --yes or --max-credits; at its cap a sync stops, and says so in
    `follows status`.
    """
    mode = SyncMode.FULL if full else SyncMode.INCREMENTAL
    named = read_users(who, source, spoilt="nothing was asked for")
    async with open_app(invocation.settings) as app:
        try:
            subjects = unique([await subject_of(app, each) for each in named])
            for subject in subjects:
                await look_up_counts(app, subject.user_id)
        except WorkError as error:
            complain(f"{error}; nothing was asked for", app.secrets)
            return 1
        bills = [await quote_follows(app, subject.user_id, side.each, mode) for subject in subjects]
        if quote:
            users = [_user(subject, bill) for subject, bill in zip(subjects, bills, strict=True)]
            lines = [line for subject, bill in zip(subjects, bills, strict=True) for line in _bill_lines(subject, bill)]
            invocation.out.show(_document(mode, users), *lines, "Nothing is read yet: leave out --quote to begin.")
            return 0
        _require_confirmed(bills, confirmed=yes or max_credits is not None)
        share = None if max_credits is None else max(max_credits // len(subjects), 1)
        syncs = [
            await ask_for_syncs(
                app, subject.user_id, side.each, mode, asked_by=ASKED_BY, confirmed=yes, max_credits=share
            )
            for subject in subjects
        ]
        hint = "" if app.settings.x_api_key else "workers will need a key for X: set MISTNET_X_API_KEY"
    asked = list(zip(subjects, bills, syncs, strict=True))
    lines = [
        line for subject, bill, own in asked for line in (*_told(subject, own, full=full), *_bill_lines(subject, bill))
    ]
    invocation.out.show(_document(mode, [_user(*each) for each in asked]), *lines, *([hint] if hint else []))
    return 0


def _require_confirmed(bills: Sequence[FollowBill], *, confirmed: bool) -> None:
    """Many lists that are cheap each may be dear together."""
    likely, threshold = sum(bill.credits or 0 for bill in bills), bills[0].confirm_credits
    if likely > threshold and not confirmed:
        raise NeedsConfirmation(likely, threshold)


def _document(mode: SyncMode, users: Sequence[Mapping[str, Any]]) -> Any:
    """A single user is told at the top too."""
    return document(mode=mode, users=users, **(users[0] if len(users) == 1 else {}))


def _user(subject: Subject, bill: FollowBill, asked: Sequence[RequestedSync] | None = None) -> Mapping[str, Any]:
    syncs = {} if asked is None else {"syncs": [{"side": each.side, "created": each.created} for each in asked]}
    return {"user_id": subject.user_id, "handle": subject.handle, **syncs, **_bill_fields(bill)}


@shared_options
async def list_follows(
    invocation: Invocation,
    who: Who,
    *,
    side: Annotated[Side, typer.Option("--side", help="Which list.")] = Side.FOLLOWERS,
    ended: Annotated[bool, typer.Option("--ended", help="Those who were there once, and are no more.")] = False,
    after: Annotated[
        int,
        typer.Option("--after", min=0, max=_LARGEST_ID, metavar="ID", help="Only those after this id: the next page."),
    ] = 0,
    limit: Limit = 50,
) -> None:
    """Show who follows a user, or whom he follows, by their ids."""
    async with open_app(invocation.settings) as app:
        subject, stored = await known_subject(app, who), Follows(app.database)
        tallied = await stored.tallied(subject.user_id, side)
        known = (await stored.known_since(subject.user_id)).get(side)
        found = await stored.page(subject.user_id, side, ended=ended, after=after, limit=limit)
    more = found[-1].user_id if len(found) == limit else None
    facts = document(
        user_id=subject.user_id,
        handle=subject.handle,
        side=side,
        live=tallied.live,
        doubted=tallied.doubted,
        ended=tallied.ended,
        known_since=known,
        users=[_line(each) for each in found],
        next_after=None if more is None else str(more),
    )
    grid = Grid(
        columns=("id", "handle", "name", "first seen (UTC)", "last seen (UTC)", "note"),
        rows=[_row(each) for each in found],
        empty="nobody; `mistnet follows sync` reads the list",
    )
    invocation.out.show(facts, _head(subject, side, tallied, known), grid, *([f"more: --after {more}"] if more else []))


@shared_options
async def events(
    invocation: Invocation,
    who: Who,
    *,
    before: Annotated[
        int,
        typer.Option(
            "--before", min=1, max=_LARGEST_ID, metavar="ID", help="Only those before this event: the next page."
        ),
    ] = _LARGEST_ID,
    limit: Limit = 50,
) -> None:
    """Show who began and ceased to follow a user, and whom he did, the latest first, with the cause as far as known."""
    async with open_app(invocation.settings) as app:
        subject, stored = await known_subject(app, who), Follows(app.database)
        found = await stored.events(subject.user_id, before=before, limit=limit)
        known = await stored.known_since(subject.user_id)
    more = found[-1].id if len(found) == limit else None
    facts = document(
        user_id=subject.user_id,
        handle=subject.handle,
        known_since={str(side): known.get(side) for side in Side},
        events=[change_fields(each) for each in found],
        next_before=None if more is None else str(more),
    )
    grid = Grid(
        columns=("event", "at (UTC)", "who", "what", "whom", "cause"),
        rows=[_event(each) for each in found],
        empty=f"nothing is known to have changed around {subject}",
    )
    since = "; ".join(f"{side} {_known(known.get(side))}" for side in Side)
    invocation.out.show(facts, grid, *([f"more: --before {more}"] if more else []), since)


@shared_options
async def status(
    invocation: Invocation,
    who: Annotated[str | None, typer.Argument(metavar="[USER]", help="Of this user alone.")] = None,
    *,
    limit: Limit = 50,
) -> None:
    """Show how the latest sync of each list went: how many it saw, whether it can be believed, and why not."""
    async with open_app(invocation.settings) as app:
        await app.look_after_ingests()
        subject = await known_subject(app, who) if who else None
        found = await Follows(app.database).syncs(user_id=subject.user_id if subject else None, limit=limit)
    grid = Grid(
        columns=("user", "side", "mode", "status", "believed", "seen", "begun (UTC)", "finished (UTC)", "note"),
        rows=[_sync(each) for each in found],
        empty="no list was ever read: `mistnet follows sync USER` asks for one",
    )
    invocation.out.show(document(syncs=[_sync_fields(each) for each in found]), grid)


def _bill_fields(bill: FollowBill) -> dict[str, Any]:
    return {"quotes": bill.quotes, "credits": bill.credits, "confirm_credits": bill.confirm_credits}


def _bill_lines(subject: Subject, bill: FollowBill) -> list[str]:
    lines = [
        f"the {each.side} of {subject}: {each.users:,} users, about {each.credits:,} credits"
        if each.users is not None
        else f"the {each.side} of {subject}: their number is not known yet, and so neither is the price"
        for each in bill.quotes
    ]
    if bill.credits is not None:
        lines.append(f"about {bill.credits:,} credits (US$ {bill.credits / CREDITS_PER_DOLLAR:,.2f}) in all")
    return ["\n".join(lines)]


def _told(subject: Subject, asked: Sequence[RequestedSync], *, full: bool) -> list[str]:
    """A sync that is alive is shared, whatever its mode."""
    already = "are being read already" + (": if not in full, ask again when that is over" if full else "")
    lines = [f"the {each.side} of {subject} {'will be read' if each.created else already}" for each in asked]
    return ["\n".join(lines), f"next: `mistnet follows status {subject.user_id}` tells how far it is"]


def _known(since: datetime | None) -> str:
    """Since when changes of a list are known."""
    return f"known since {at(since)} UTC" if since else "not read to their end yet"


def _head(subject: Subject, side: Side, tallied: Tallied, known: datetime | None) -> str:
    doubted = f", {tallied.doubted:,} of them doubted since a sync missed them" if tallied.doubted else ""
    return f"{side} of {subject}: {tallied.live:,}{doubted}; {tallied.ended:,} ended; {_known(known)}"


def _line(line: FollowLine) -> dict[str, Any]:
    return {name: getattr(line, name) for name in line.__struct_fields__}


def _row(line: FollowLine) -> Sequence[str]:
    note = f"ended {at(line.ended_at)}" if line.ended_at else "doubted" if line.doubted else ""
    handle = f"@{line.handle}" if line.handle else ""
    return (str(line.user_id), handle, line.name or "", at(line.first_seen_at), at(line.last_seen_at), note)


def change_fields(change: FollowChange) -> dict[str, Any]:
    """An event as a document: ids as strings."""
    told = {name: getattr(change, name) for name in change.__struct_fields__}
    ids = {name: str(told[name]) for name in ("follower_id", "followed_id")}
    return {**told, **ids, "ingest_id": None if change.ingest_id is None else str(change.ingest_id)}


def _event(change: FollowChange) -> Sequence[str]:
    who, whom = change.follower_handle or change.follower_id, change.followed_handle or change.followed_id
    return (str(change.id), at(change.at), f"@{who}", change.kind, f"@{whom}", change.cause)


def _sync(line: SyncLine) -> Sequence[str]:
    believed = {True: "yes", False: "no", None: ""}[line.plausible]
    user = f"@{line.handle}" if line.handle else str(line.user_id)
    note = last_line(line.waits if line.finished_at is None and line.waits else line.problem)
    times = (at(line.started_at), at(line.finished_at))
    return (user, line.side, line.mode or "", line.status, believed, f"{line.items:,}", *times, note)


def _sync_fields(line: SyncLine) -> dict[str, Any]:
    return {**{name: getattr(line, name) for name in line.__struct_fields__}, "ingest_id": str(line.ingest_id)}
