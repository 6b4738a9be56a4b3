"""Ingest events on the command line, and the sync of a set of users' posts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import FileOption, read_users
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import Grid, at, document, last_line
from mistnet.cli.search import moment
from mistnet.kit.text import counted
from mistnet.operations.schedule.store import first_id_at
from mistnet.queue.errors import WorkError
from mistnet.social.ingests.jobs import MOST_USERS, posts_sync
from mistnet.social.ingests.model import Ingest, IngestId, IngestKind, IngestNotFound, IngestStatus
from mistnet.social.model import PostId
from mistnet.sources.x.follows import subject_of

_WIDTH = 60

Who = Annotated[
    list[str] | None,
    typer.Argument(metavar="[WHO]...", help="Their ids or handles; commas may join them."),
]
Since = Annotated[
    datetime | None,
    typer.Option("--since", parser=moment, metavar="TIME", help="From this time on, in ISO 8601; UTC if no zone."),
]
SinceId = Annotated[
    int | None, typer.Option("--since-id", min=1, max=LARGEST_ID, metavar="ID", help="Or: after this post.")
]
Kind = Annotated[IngestKind | None, typer.Option("--kind", help="Only of this kind.")]
Status = Annotated[IngestStatus | None, typer.Option("--status", help="Only those that stand like this.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")]
BeforeId = Annotated[
    int, typer.Option("--before-id", min=1, max=LARGEST_ID, metavar="ID", help="Only those before this one.")
]


@shared_options
async def posts_of(
    invocation: Invocation,
    who: Who = None,
    *,
    since: Since = None,
    since_id: SinceId = None,
    source: FileOption = None,
) -> int:
    """Collect what a set of users wrote since a time or a post. Workers do it, in one job.

    Users who are not stored yet are hydrated first; if one of them cannot be had, the job fails and writes nothing.
    """
    if (since is None) == (since_id is None):
        raise typer.BadParameter("say since when: either --since TIME or --since-id ID")
    floor = PostId(since_id or (max(first_id_at(since) - 1, 0) if since else 0))
    named = read_users(who, source, spoilt="nothing was asked for")
    async with open_app(invocation.settings) as app:
        try:
            ids = sorted({(await subject_of(app, each)).user_id for each in named})
        except WorkError as error:
            complain(f"{error}; nothing was asked for", app.secrets)
            return 1
        if len(ids) > MOST_USERS:
            raise typer.BadParameter(f"{len(ids):,} users are more than the {MOST_USERS:,} one sync takes; split them")
        added = await app.enqueue([posts_sync(ids, floor, asked_by="cli")])
    said = f"the posts of {counted(len(ids), 'user')} since post {floor} are left to the workers"
    said = said if added.created else f"{said}; they were already"
    said += "" if invocation.settings.x_api_key else "; workers will need a key for X: set MISTNET_X_API_KEY"
    invocation.out.show(document(users=[str(each) for each in ids], since_id=str(floor), jobs=added), said)
    return 0


@shared_options
async def events(
    invocation: Invocation,
    *,
    kind: Kind = None,
    status: Status = None,
    limit: Limit = 20,
    before_id: BeforeId = LARGEST_ID,
) -> None:
    """List ingest events, the latest first: what was asked of upstream on purpose, and what came of it."""
    async with open_app(invocation.settings) as app:
        found = await app.ingests.list(kind=kind, status=status, before=before_id, limit=limit)
    grid = Grid(
        columns=("id", "kind", "status", "about", "began", "calls", "items", "problem"),
        rows=[_row(each) for each in found],
        empty="no ingests: `mistnet hydrate users ID` makes one",
    )
    invocation.out.show(document(ingests=[_document(each) for each in found]), grid)


@shared_options
async def event(
    invocation: Invocation,
    ingest_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="Its id.")],
) -> None:
    """Show one ingest event: what it asked for and, if it failed, what upstream answered."""
    async with open_app(invocation.settings) as app:
        found = await app.ingests.get(ingest_id)
        if found is None:
            raise IngestNotFound(IngestId(ingest_id))
        ids = await app.ingests.ids(ingest_id)
    invocation.out.show({**_document(found), "ids": [str(each) for each in ids]}, *_blocks(found, ids))


def _row(each: Ingest) -> Sequence[str]:
    about = str(each.subject_id) if each.subject_id else ""
    problem = last_line(each.problem, _WIDTH)
    return str(each.id), each.kind, each.status, about, at(each.started_at), str(each.calls), str(each.items), problem


def _document(each: Ingest) -> dict[str, object]:
    fields = {name: getattr(each, name) for name in each.__struct_fields__}
    return {**fields, "subject_id": str(each.subject_id) if each.subject_id is not None else None}


def _blocks(each: Ingest, ids: Sequence[int]) -> list[str]:
    ended = f"ended {at(each.finished_at)}" if each.finished_at else "not ended yet"
    told = f"ingest {each.id}: {each.kind}, {each.status}, asked for by {each.asked_by}"
    told += f"\nbegan {at(each.started_at)}, {ended}; {counted(each.calls, 'call')}, {counted(each.items, 'item')}"
    told += f"\nasked for: {', '.join(map(str, ids))}" if ids else ""
    told += f"\nproblem: {each.problem}" if each.problem else ""
    if each.exchange is None:
        return [told]
    headers = "\n".join(f"{name}: {value}" for name, value in each.exchange.headers.items())
    return [told, f"{each.exchange.endpoint} answered {each.exchange.status}\n{headers}\n\n{each.exchange.body}"]
