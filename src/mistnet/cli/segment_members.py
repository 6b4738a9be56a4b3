"""The segments commands for members: list and export them, show changes, and edit inputs."""

from datetime import datetime
from typing import Annotated, Final

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import FileOption, argument, moment, option, read_users, unique
from mistnet.cli.output import Grid, Output, at, complain, document, next_page
from mistnet.cli.segments import Name
from mistnet.cli.write_out import ForceOption, FormatOption, OutputOption, OutputTarget, SafeOption, write_out
from mistnet.graph.segments.listing import export_members
from mistnet.graph.segments.model import Member, MemberEvent
from mistnet.graph.segments.store import SegmentInput
from mistnet.kit.export import Target
from mistnet.kit.text import LARGEST_ID, are, counted
from mistnet.queue.errors import WorkError
from mistnet.social.ingests import NotReturned
from mistnet.social.model import UserId
from mistnet.sources.x.follows import known_subject, subject_of

INCOMPLETE: Final = 3
AsOf = Annotated[
    datetime | None, option("--as-of", "TIME", "At this time, in ISO 8601; UTC if no zone.", parser=moment)
]
Ids = Annotated[list[str] | None, argument("[WHO]...", "Their ids or handles; separate by commas.")]
Limit = Annotated[int, option("--limit", "N", "How many at most.", min=1, max=10_000)]
After = Annotated[int, option("--after", "PLACE", "The next page begins there.", min=0, max=LARGEST_ID)]


@app_command
async def members(
    app: App, out: Output, name: Name, *, as_of: AsOf = None, limit: Limit = 50, after: After = 0
) -> None:
    """Show the members of a segment, in the order in which they entered."""
    page = await app.segments.store.members(name, as_of_=as_of, after=after, limit=limit)
    grid = Grid.of(
        page.items,
        "id, who, since (UTC), text",
        id=_id,
        who=_who,
        text=lambda each: (each.text or each.name or "")[:80],
        empty="no members",
    )
    out.show(document(members=page.items, next_after=page.next), grid, *next_page(page.next, "--after"))


@app_command
async def events(
    app: App,
    out: Output,
    name: Name,
    *,
    limit: Limit = 50,
    before_id: Annotated[
        int | None, option("--before-id", "ID", "Only older ones: the next page.", min=1, max=LARGEST_ID)
    ] = None,
) -> None:
    """Show who entered and left, the latest first."""
    page = await app.segments.store.events(name, before=before_id, limit=limit)
    known = await app.segments.store.known_since(name)
    shown = document(known_since=known, events=page.items, next_before_id=page.next)
    grid = Grid.of(
        page.items, "when (UTC), what, id, who", when="at", what="kind", id=_id, who=_who, empty="no changes yet"
    )
    since = [f"known since {at(known)} UTC: its members at that time are not reported as changes"] if known else []
    out.show(shown, grid, *next_page(page.next, "--before-id"), *since)


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
    """Export all members of a segment, now or at an earlier time."""
    place = OutputTarget.of(format_, output, force=force, safe=safe)

    async def members(app: App, target: Target) -> int:
        store = app.segments.store
        return await export_members(store, await store.get(name), place.format, target, as_of=as_of)

    await write_out(invocation, place, members, what=f"segment {name}", rows_of="members", facts={"segment": name})


@shared_options
async def add(invocation: Invocation, name: Name, ids: Ids = None, *, source: FileOption = None) -> int:
    """Add users to a segment's inputs. Unknown users are fetched first; if one is not available, nothing is written.

    Exit code 3 if some are not available; their ids are listed.
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
    invocation.out.show(shown, said, f"next: `mistnet segments materialize {name}` materializes it")
    return 0


@shared_options
async def remove(invocation: Invocation, name: Name, ids: Ids = None, *, source: FileOption = None) -> None:
    """Remove users from a segment's inputs. They leave it when it is materialized next."""
    named = read_users(ids, source, spoilt="nothing was changed")
    async with open_app(invocation.settings) as app:
        wanted = unique(
            [(await known_subject(app, each)).user_id if each.startswith("@") else UserId(int(each)) for each in named]
        )
        removed = await app.segments.store.remove_inputs(name, wanted)
    invocation.out.show(
        document(segment=name, removed=removed),
        f"{removed:,} of {counted(len(wanted), 'user')} {are(removed)} removed",
    )


@app_command
async def list_inputs(app: App, out: Output, name: Name, *, limit: Limit = 50, after: After = 0) -> None:
    """Show a segment's inputs, by id."""
    page = await app.segments.store.inputs(name, after=after, limit=limit)
    none = f"no inputs yet: run `mistnet segments inputs add {name}`"
    grid = Grid.of(page.items, "id, who, added (UTC)", id="user_id", who=_who, empty=none)
    out.show(document(inputs=page.items, next_after=page.next), grid, *next_page(page.next, "--after"))


def _id(each: Member | MemberEvent) -> int | None:
    return each.post_id if each.user_id is None else each.user_id


def _who(each: Member | MemberEvent | SegmentInput) -> str | None:
    return f"@{each.handle}" if each.handle else None
