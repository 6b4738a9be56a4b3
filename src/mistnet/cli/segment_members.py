"""The segments commands about their members: who is in, who came and went, whom somebody named, all written out."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import FileOption, read_users, unique
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import Grid, at, document
from mistnet.cli.search import moment
from mistnet.cli.segments import Name
from mistnet.cli.write_out import ForceOption, FormatOption, OutputOption, OutputTarget, SafeOption, write_out
from mistnet.graph.segments.model import Member, MemberEvent
from mistnet.graph.segments.pages import export_members
from mistnet.kit.export import Target
from mistnet.kit.text import are, counted
from mistnet.queue.errors import WorkError
from mistnet.social.ingests.model import NotReturned
from mistnet.social.model import UserId
from mistnet.sources.x.follows import known_subject, subject_of

INCOMPLETE: Final = 3
AsOf = Annotated[
    datetime | None,
    typer.Option("--as-of", parser=moment, metavar="TIME", help="As they were then, in ISO 8601; UTC if no zone."),
]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[WHO]...", help="Their ids or handles; commas may join them.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="How many at most.")]


@shared_options
async def members(
    invocation: Invocation,
    name: Name,
    *,
    as_of: AsOf = None,
    limit: Limit = 50,
    after: Annotated[
        int, typer.Option("--after", min=0, max=LARGEST_ID, metavar="PLACE", help="The next page begins there.")
    ] = 0,
) -> None:
    """Who or what is in a segment, in the order in which they came."""
    async with open_app(invocation.settings) as app:
        found = await app.segments.store.members(name, as_of_=as_of, after=after, limit=limit)
    more = found[-1].place if len(found) == limit else None
    shown = document(members=[_member(each) for each in found], next_after=str(more) if more else None)
    grid = Grid(columns=("id", "who", "since (UTC)", "text"), rows=[_line(each) for each in found], empty="nobody")
    invocation.out.show(shown, grid, *([f"more: --after {more}"] if more else []))


@shared_options
async def events(
    invocation: Invocation,
    name: Name,
    *,
    limit: Limit = 50,
    before_id: Annotated[
        int, typer.Option("--before-id", min=1, max=LARGEST_ID, metavar="ID", help="Only older ones: the next page.")
    ] = LARGEST_ID,
) -> None:
    """Who came and who went, the latest first."""
    async with open_app(invocation.settings) as app:
        found = await app.segments.store.events(name, before=before_id, limit=limit)
        known = await app.segments.store.known_since(name)
    more = found[-1].id if len(found) == limit else None
    shown = document(
        known_since=known, events=[_event(each) for each in found], next_before_id=str(more) if more else None
    )
    rows = [(at(each.at), each.kind, _id(each), f"@{each.handle}" if each.handle else "") for each in found]
    grid = Grid(columns=("when (UTC)", "what", "id", "who"), rows=rows, empty="nobody came or went yet")
    since = [f"known since {at(known)} UTC: who was in it then has not come"] if known else []
    invocation.out.show(shown, grid, *([f"more: --before-id {more}"] if more else []), *since)


@shared_options
async def export(
    invocation: Invocation,
    name: Name,
    *,
    format_: FormatOption = None,
    output: OutputOption = None,
    as_of: AsOf = None,
    safe: SafeOption = False,
    force: ForceOption = False,
) -> None:
    """Write out all members of a segment, now or as they were."""

    place = OutputTarget.of(format_, output, force=force, safe=safe)

    async def members(app: App, target: Target) -> int:
        store = app.segments.store
        return await export_members(store, await store.get(name), place.format, target, as_of=as_of)

    await write_out(invocation, place, members, what=f"segment {name}", rows_of="members", told={"segment": name})


@shared_options
async def add(invocation: Invocation, name: Name, ids: Ids = None, *, source: FileOption = None) -> int:
    """Name users of a segment. Those that are not stored are fetched first: all of them, or nothing is written.

    Exit code 3 if one is not to be had; the missing ids are named.
    """
    named = read_users(ids, source, spoilt="nothing was changed")
    async with open_app(invocation.settings) as app:
        try:
            wanted = unique([(await subject_of(app, each)).user_id for each in named])
            done = await app.segments.add_inputs(name, wanted, asked_by="cli")
        except NotReturned as error:
            if invocation.out.as_json:
                invocation.out.show(document(segment=name, added=0, missing=[str(each) for each in error.missing]))
            complain(str(error), app.secrets)
            return INCOMPLETE
        except WorkError as error:
            complain(f"{error}; nothing was written", app.secrets)
            return 1
    fetched = len(done.hydrated.fetched)
    shown = document(segment=name, added=done.added, fetched=[str(each) for each in done.hydrated.fetched], missing=[])
    said = f"{done.added:,} of {counted(len(wanted), 'user')} {are(done.added)} new in {name}" + (
        f"; {fetched:,} fetched" if fetched else ""
    )
    invocation.out.show(shown, said, f"next: `mistnet segments materialize {name}` works it out")
    return 0


@shared_options
async def remove(invocation: Invocation, name: Name, ids: Ids = None, *, source: FileOption = None) -> None:
    """Take users out of a segment's inputs. They leave it when it is worked out next."""
    named = read_users(ids, source, spoilt="nothing was changed")
    async with open_app(invocation.settings) as app:
        wanted = unique([_number(each) or (await known_subject(app, each)).user_id for each in named])
        removed = await app.segments.store.remove_inputs(name, wanted)
    invocation.out.show(
        document(segment=name, removed=removed),
        f"{removed:,} of {counted(len(wanted), 'user')} {are(removed)} taken out",
    )


@shared_options
async def list_inputs(
    invocation: Invocation,
    name: Name,
    *,
    limit: Limit = 50,
    after: Annotated[
        int, typer.Option("--after", min=0, max=LARGEST_ID, metavar="ID", help="The next page begins there.")
    ] = 0,
) -> None:
    """Whom somebody named, by id."""
    async with open_app(invocation.settings) as app:
        found = await app.segments.store.inputs(name, after=after, limit=limit)
    more = found[-1].user_id if len(found) == limit else None
    rows = [(str(each.user_id), f"@{each.handle}" if each.handle else "", at(each.added_at)) for each in found]
    grid = Grid(
        columns=("id", "who", "named (UTC)"), rows=rows, empty=f"nobody yet: `mistnet segments inputs add {name}`"
    )
    shown = document(inputs=found, next_after=str(more) if more else None)
    invocation.out.show(shown, grid, *([f"more: --after {more}"] if more else []))


def _number(named: str) -> UserId | None:
    return None if named.startswith("@") else UserId(int(named))


def _id(each: Member | MemberEvent) -> str:
    return str(each.user_id if each.user_id is not None else each.post_id)


def _member(member: Member) -> Mapping[str, Any]:
    told = {name: getattr(member, name) for name in member.__struct_fields__}
    return {**told, "place": str(member.place), "user_id": _text(member.user_id), "post_id": _text(member.post_id)}


def _event(event: MemberEvent) -> Mapping[str, Any]:
    told = {name: getattr(event, name) for name in event.__struct_fields__}
    ids = {"snapshot_id": _text(event.snapshot_id), "user_id": _text(event.user_id), "post_id": _text(event.post_id)}
    return {**told, **ids}


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)


def _line(member: Member) -> Sequence[str]:
    who = f"@{member.handle}" if member.handle else ""
    return _id(member), who, at(member.since), (member.text or member.name or "")[:80]
