"""Segments: all of them, and one with its members over time, its changes, and a picture of its graph."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Query
from fastapi.responses import Response

from mistnet.app import App
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE
from mistnet.graph.segments.listing import SegmentLine, SegmentPages
from mistnet.graph.segments.materialize import job_of
from mistnet.graph.segments.model import BadSegment, SegmentDisabled, SegmentId, What
from mistnet.graph.segments.rules import read_name, read_rule
from mistnet.graph.selection import Edges
from mistnet.kit.errors import MistnetError, UsageError
from mistnet.kit.text import read_id
from mistnet.social.model import UserId, read_handle
from mistnet.social.store.account_pages import People
from mistnet.web.errors import require
from mistnet.web.fields import BeforeId, NumberPath, without_nul
from mistnet.web.pages.charts import RHYTHMS, segment_row
from mistnet.web.pages.graph_pictures import HEIGHT, WIDTH, PictureKey
from mistnet.web.pages.plots import line_plot
from mistnet.web.pages.render import OperatorPage, PageRequest, ReaderPage, redirect_to

router = APIRouter(include_in_schema=False)
_PAGE: Final = 20
_CHANGES: Final = 20
_COUNTS: Final = 500
KINDS: Final = {
    "followers": "followers of",
    "followed": "users followed by",
    "mutuals": "mutuals of",
    "unreciprocated_followed": "followed without following back, of",
    "specified_users": "these users:",
}
"""The simple rules. All others are defined by command or API."""

Written = Annotated[str, Form(max_length=20_000)]


@router.get("/segments")
async def segments(page: ReaderPage, after: Annotated[str, Query(max_length=100), without_nul] = "") -> Response:
    return await _list(page, after)


async def _list(page: PageRequest, after: str = "", **form: Any) -> Response:
    lines = await SegmentPages(page.app.database).list(after=after, limit=_PAGE)
    usual = {"problem": None, "given": {"name": "", "kind": "followers", "whom": "", "every": ""}}
    return page.render(
        "segments.html",
        rows=[segment_row(line) for line in lines.items],
        kinds=KINDS,
        rhythms=RHYTHMS,
        after=after,
        more=lines.next,
        **{**usual, **form},
    )


@router.post("/segments")
async def define(
    page: OperatorPage,
    name: Annotated[str, Form(max_length=200)] = "",
    kind: Annotated[str, Form(max_length=40)] = "",
    whom: Written = "",
    every: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Define a segment and materialize it."""
    given = {"name": name, "kind": kind, "whom": whom, "every": every}
    try:
        own = await _define(page.app, page.caller.name, **given)
    except MistnetError as error:
        status = 400 if isinstance(error, UsageError) else 503
        return await _list(page, status=status, problem=str(error), given=given)
    return redirect_to(f"/segments/{own}", "defined")


async def _define(app: App, operator: str, *, name: str, kind: str, whom: str, every: str) -> SegmentId:
    """The form is checked first, so that a bad rule is refused before any call to X."""
    segment_name, words = read_name(name.strip()), whom.replace(",", " ").split()
    if kind not in KINDS or not words:
        raise BadSegment(segment_name, "choose a rule, and name the users it is about")
    one_by_one = kind == "specified_users"
    if not one_by_one and len(words) > 1:
        raise BadSegment(segment_name, "its rule is about one user; name one, as @name or by the id")
    # Resolved before anything is paid for.
    ids = [await _input(app, segment_name, word) for word in words] if one_by_one else []
    if set(ids) - await app.hydration.present("users", ids):
        # Before the segment is created: if one of them is not available, it is not.
        if not app.settings.x_api_key:
            raise NoKey
        async with app.sources[X_SOURCE].opened():
            await app.hydration.hydrate("users", ids, asked_by=operator)
    chosen = {"kind": kind}
    if not one_by_one:
        # An id stays as it is. Anything else is a handle, or the URL of a profile.
        chosen["subject"] = words[0] if read_id(words[0]) else f"@{read_handle(words[0])}"
    rule = read_rule(segment_name, chosen)
    defined = await app.segments.define(segment_name, rule, every_seconds=RHYTHMS.get(every, RHYTHMS[""])[1])
    if ids:
        await app.segments.add_inputs(segment_name, ids, asked_by=operator)
    await app.segments.materialize(segment_name, asked_by=operator, job_writer=app.job_writer)
    return defined.segment.id


async def _input(app: App, name: str, written: str) -> UserId:
    """Unknown ids are fetched later, all at once. Handles must belong to stored users."""
    if user_id := read_id(written):
        return UserId(user_id)
    found = await People(app.database).called(read_handle(written))
    if found is None:
        raise BadSegment(name, f"no stored user has the handle {written!r}; give the id instead")
    return found.id


@router.post("/segments/{segment_id}/materialize")
async def materialize_now(page: OperatorPage, segment_id: NumberPath) -> Response:
    """A live job is shared."""
    app, line = page.app, await _known(page.app, segment_id)
    try:
        await app.segments.materialize(line.name, asked_by=page.caller.name, job_writer=app.job_writer)
    except SegmentDisabled:
        return redirect_to(f"/segments/{line.id}", "disabled-segment")
    return redirect_to(f"/segments/{line.id}", "materializing")


@router.post("/segments/{segment_id}/enable")
async def enable(page: OperatorPage, segment_id: NumberPath) -> Response:
    line = await _known(page.app, segment_id)
    await page.app.segments.store.enable(line.name, now=page.now)
    return redirect_to(f"/segments/{line.id}", "enabled")


@router.post("/segments/{segment_id}/disable")
async def disable(page: OperatorPage, segment_id: NumberPath) -> Response:
    line = await _known(page.app, segment_id)
    await page.app.segments.store.disable(line.name, now=page.now)
    return redirect_to(f"/segments/{line.id}", "disabled")


async def _known(app: App, segment_id: int) -> SegmentLine:
    return require(await SegmentPages(app.database).one(SegmentId(segment_id)), f"segment {segment_id}")


@router.get("/segments/{segment_id}")
async def segment(
    page: ReaderPage,
    segment_id: NumberPath,
    before: BeforeId = None,
    changes_before: BeforeId = None,
    edges: Edges = Edges.FOLLOWS,
) -> Response:
    line, pages = await _known(page.app, segment_id), SegmentPages(page.app.database)
    members = await pages.members(line.id, before=before, limit=_PAGE)
    changes = await pages.changes(line.id, before=changes_before, limit=_CHANGES)
    counts = await pages.snapshots(line.id, limit=_COUNTS)
    picture = None
    if line.what is What.USERS and line.materialized_at is not None:
        picture = await page.dashboard.pictures.get(PictureKey(line.id, edges, line.materialized_at))
    return page.render(
        "segment.html",
        **segment_row(line),
        work=await job_of(page.app.database, line.id),
        counts=counts,
        plot=line_plot([each.at for each in counts], [each.members for each in counts], str(line.what)),
        changes=changes.items,
        more_changes=changes.next,
        members=members.items,
        before=before,
        changes_before=changes_before,
        more=members.next,
        picture=picture,
        edges=edges,
        every_edges=list(Edges),
        paper=(WIDTH, HEIGHT),
    )
