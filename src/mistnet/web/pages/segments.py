"""Segments: all of them, and one with its members over time, who came and went, and a picture of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE
from mistnet.graph.errors import BadSegment, SegmentDisabled
from mistnet.graph.export import Edges
from mistnet.graph.segments.model import SegmentId, What
from mistnet.graph.segments.pages import SegmentLine, SegmentPages
from mistnet.graph.segments.rules import read_name, read_rule
from mistnet.kit.errors import MistnetError, UsageError
from mistnet.kit.text import read_id
from mistnet.social.model import UserId, read_handle
from mistnet.social.store.account_pages import People
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound
from mistnet.web.pages.accounts import BeforeId, LargestId
from mistnet.web.pages.dashboard_counts import Dashboard, Shown
from mistnet.web.pages.drawings import RHYTHMS, members_chart, segment_row
from mistnet.web.pages.graph_pictures import HEIGHT, WIDTH, GraphPicture
from mistnet.web.pages.render import page
from mistnet.web.tokens import Caller

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
_CHANGES: Final = 20
_COUNTS: Final = 500
KINDS: Final = {
    "followers": "followers of",
    "followed": "users followed by",
    "mutuals": "mutuals of",
    "unreciprocated_followed": "followed without following back, of",
    "specified_users": "these users:",
}
"""The simple rules; all others are defined by command or API."""

SegmentPath = Annotated[int, Path(ge=1, le=LargestId)]
Written = Annotated[str, Form(max_length=20_000)]


@router.get("/segments")
async def segments(
    request: Request, visitor: Reader, app: Mistnet, after: Annotated[str, Query(max_length=100)] = ""
) -> HTMLResponse:
    return await _listed(request, visitor, app, after=after.replace("\x00", ""))


async def _listed(
    request: Request, visitor: Caller, app: App, *, after: str = "", status: int = 200, **shown: Any
) -> HTMLResponse:
    found = await SegmentPages(app.database).list(after=after, limit=_PAGE)
    usual = {"problem": None, "given": {"name": "", "kind": "followers", "whom": "", "every": ""}}
    return page(
        request,
        "segments.html",
        visitor,
        status=status,
        rows=[segment_row(line) for line in found],
        kinds=KINDS,
        rhythms=RHYTHMS,
        after=after,
        more=found[-1].name if len(found) == _PAGE else None,
        **{**usual, **shown},
    )


@router.post("/segments")
async def define(
    request: Request,
    visitor: Operator,
    app: Mistnet,
    name: Annotated[str, Form(max_length=200)] = "",
    kind: Annotated[str, Form(max_length=40)] = "",
    whom: Written = "",
    every: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Defines a segment and has it worked out."""
    given = {"name": name, "kind": kind, "whom": whom, "every": every}
    try:
        own = await _define(app, visitor, **given)
    except MistnetError as error:
        status = 400 if isinstance(error, UsageError) else 503
        return await _listed(request, visitor, app, status=status, problem=str(error), given=given)
    return RedirectResponse(f"/segments/{own}?did=defined", 303)


async def _define(app: App, visitor: Caller, *, name: str, kind: str, whom: str, every: str) -> SegmentId:
    """The rule first, so that what is wrong with it is told before anything is asked of X."""
    own, words = read_name(name.strip()), whom.replace(",", " ").split()
    if kind not in KINDS or not words:
        raise BadSegment(own, "say who is in it: choose a rule, and name whom it is about")
    one_by_one = kind == "specified_users"
    if not one_by_one and len(words) > 1:
        raise BadSegment(own, "its rule is about one user; name one, as @name or by the id")
    ids = [await _input(app, own, word) for word in words] if one_by_one else []
    await _hydrate(app, visitor, ids)
    rule = read_rule(own, {"kind": kind} if one_by_one else {"kind": kind, "subject": _subject(words[0])})
    defined = await app.segments.define(own, rule, every_seconds=RHYTHMS.get(every, RHYTHMS[""])[1])
    if ids:
        await app.segments.add_inputs(own, ids, asked_by=visitor.name)
    await app.segments.materialize(own, asked_by=visitor.name, job_writer=app.job_writer)
    return defined.segment.id


async def _hydrate(app: App, visitor: Caller, ids: Sequence[UserId]) -> None:
    """Before there is a segment: if one of them is not to be had, there is none."""
    lacking = set(ids) - await app.hydration.present("users", ids)
    if not lacking:
        return
    if not app.settings.x_api_key:
        raise NoKey
    async with app.sources[X_SOURCE].opened():
        await app.hydration.hydrate("users", ids, asked_by=visitor.name)


def _subject(written: str) -> str:
    """An id as it is; anything else is a handle, or the address of a profile."""
    return written if _is_id(written) else f"@{read_handle(written)}"


async def _input(app: App, name: str, written: str) -> UserId:
    """Ids of users who are not stored are looked up later, all at once; of handles only stored ones are known."""
    if _is_id(written):
        return UserId(int(written))
    found = await People(app.database).called(read_handle(written))
    if found is None:
        raise BadSegment(name, f"no stored user goes by {written!r}; give the id instead")
    return found.id


def _is_id(written: str) -> bool:
    return read_id(written) is not None


@router.post("/segments/{segment_id}/materialize")
async def materialize_now(visitor: Operator, app: Mistnet, segment_id: SegmentPath) -> RedirectResponse:
    """Whoever asks while it is being worked out joins those who have asked."""
    line = await _known(app, segment_id)
    try:
        await app.segments.materialize(line.name, asked_by=visitor.name, job_writer=app.job_writer)
    except SegmentDisabled:
        return RedirectResponse(f"/segments/{line.id}?did=disabled-segment", 303)
    return RedirectResponse(f"/segments/{line.id}?did=materializing", 303)


@router.post("/segments/{segment_id}/enable")
async def enable(_visitor: Operator, app: Mistnet, segment_id: SegmentPath) -> RedirectResponse:
    line = await _known(app, segment_id)
    await app.segments.store.enable(line.name, now=app.database.clock.now())
    return RedirectResponse(f"/segments/{line.id}?did=enabled", 303)


@router.post("/segments/{segment_id}/disable")
async def disable(_visitor: Operator, app: Mistnet, segment_id: SegmentPath) -> RedirectResponse:
    line = await _known(app, segment_id)
    await app.segments.store.disable(line.name, now=app.database.clock.now())
    return RedirectResponse(f"/segments/{line.id}?did=disabled", 303)


async def _known(app: App, segment_id: int) -> SegmentLine:
    found = await SegmentPages(app.database).one(SegmentId(segment_id))
    if found is None:
        raise NotFound(f"segment {segment_id}")
    return found


@router.get("/segments/{segment_id}")
async def segment(
    request: Request,
    visitor: Reader,
    app: Mistnet,
    dashboard: Shown,
    segment_id: SegmentPath,
    before: BeforeId = None,
    changes_before: BeforeId = None,
    edges: Edges = Edges.FOLLOWS,
) -> HTMLResponse:
    line, pages = await _known(app, segment_id), SegmentPages(app.database)
    members = await pages.members(line.id, before=before, limit=_PAGE)
    changes = await pages.changes(line.id, before=changes_before, limit=_CHANGES)
    counts = await pages.counts(line.id, limit=_COUNTS)
    return page(
        request,
        "segment.html",
        visitor,
        **segment_row(line),
        work=await pages.work(line.id),
        counts=counts,
        chart=members_chart(counts),
        changes=changes,
        more_changes=changes[-1].id if len(changes) == _CHANGES else None,
        members=members,
        before=before,
        changes_before=changes_before,
        more=members[-1].place if len(members) == _PAGE else None,
        picture=await _picture(dashboard, line, edges),
        edges=edges,
        every_edges=list(Edges),
        paper=(WIDTH, HEIGHT),
    )


async def _picture(dashboard: Dashboard, line: SegmentLine, edges: Edges) -> GraphPicture | None:
    """Of people only, and of a segment that was worked out."""
    if line.what is not What.USERS or line.materialized_at is None:
        return None
    return await dashboard.pictures.get(line.id, edges, line.materialized_at)
