"""Downloads: what a list of the dashboard shows, with its filters and with all its rows, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeAlias

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from mistnet.app import App
from mistnet.data.export import Exporter
from mistnet.data.model import Selection, TableName
from mistnet.data.tables import Condition, column_is
from mistnet.graph.segments.listing import SegmentLine, SegmentPages
from mistnet.kit.columns import ColumnShape, fields_of
from mistnet.kit.columns import Field as Column
from mistnet.kit.export import ExportTarget, Format, stream_pages
from mistnet.kit.view import ListPage
from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.runs.model import Run
from mistnet.prices.model import ItemState
from mistnet.prices.store.item_listing import ItemFilter, item_conditions
from mistnet.prices.watches import WatchLine
from mistnet.queue.store.inspect import JobView
from mistnet.shops.model import LinkKind, LinkState
from mistnet.shops.store.link_pages import LinkFilter, link_conditions, named_link
from mistnet.shops.store.product_pages import Asks, ProductFilter, product_conditions
from mistnet.social.accounts import AccountState
from mistnet.social.feeds import Feed
from mistnet.social.model import Platform, X
from mistnet.social.store.account_pages import account_conditions
from mistnet.web.errors import NotFound, RequestRefused
from mistnet.web.fields import LARGEST_ID, one_of, without_nul
from mistnet.web.pages.jobs import WantedJobs, job_filter
from mistnet.web.pages.posts import read_day
from mistnet.web.pages.products import VALUED
from mistnet.web.pages.render import PageRequest, ReaderPage

router = APIRouter(include_in_schema=False)
_ROWS: Final = 500
_STRUCTURED: Final = (ColumnShape.JSON, ColumnShape.LIST)
_TYPES: Final = {Format.CSV: "text/csv; charset=utf-8", Format.JSONL: "application/x-ndjson"}
_Text: TypeAlias = Annotated[str, Field(max_length=500), without_nul]
_Id: TypeAlias = Annotated[int, Field(ge=1, le=LARGEST_ID)]


class ListFilters(BaseModel):
    """The filters of all lists, by the names that their pages have for them. Other parameters are ignored."""

    q: _Text = ""
    platform: _Text = ""
    state: _Text = ""
    kind: _Text = ""
    lane: _Text = ""
    shop: _Text = ""
    price: _Text = ""
    valued: _Text = ""
    author: _Text = ""
    since: _Text = ""
    until: _Text = ""
    segment: _Text = ""
    account: _Text = ""
    error: _Text = ""
    conversation: _Id | None = None
    product: _Id | None = None
    item: _Id | None = None
    excel: Literal["yes", ""] = ""


_WHOLE: Final = (
    TableName.CALLS,
    TableName.COVERAGE,
    TableName.FOLLOW_EVENTS,
    TableName.POST_LINKS,
    TableName.SEGMENT_MEMBERS,
    TableName.SUGGESTIONS,
)
"""Tables whose only filters are an account and a segment."""

_TABLES: Final = (
    TableName.ACCOUNTS,
    TableName.POSTS,
    TableName.LINKS,
    TableName.PRODUCTS,
    TableName.ITEMS,
    TableName.OFFERS,
    TableName.PRICE_POINTS,
    *_WHOLE,
)


def _read_selection(what: TableName, given: ListFilters) -> Selection:
    """The filters that an export of the table has too."""
    if what is TableName.POSTS:
        return Selection(
            what=what,
            accounts=[each for each in (given.account or given.author,) if each.strip()],
            platform=given.platform or None,
            query=given.q if given.q.strip() else None,
            since=read_day(given.since),
            until=read_day(given.until, later=1),
        )
    if what in _WHOLE:
        accounts = [given.account] if given.account.strip() else []
        return Selection(what=what, accounts=accounts, segment=given.segment or None)
    return Selection(what=what)


async def _find_conditions(app: App, what: TableName, given: ListFilters) -> Sequence[Condition]:  # noqa: PLR0911 (one for each list)
    """The filters that only the list's page has."""
    match what:
        case TableName.ACCOUNTS:
            return account_conditions(Platform(given.platform or X), given.q, one_of(AccountState, given.state))
        case TableName.POSTS if given.conversation:
            return [column_is(what, "conversation_id", given.conversation)]
        case TableName.LINKS:
            if known := await named_link(app, given.q):
                return [column_is(what, "id", known)]
            state, kind = one_of(LinkState, given.state), one_of(LinkKind, given.kind)
            return link_conditions(LinkFilter(lane=given.lane or None, state=state, kind=kind, words=given.q))
        case TableName.PRODUCTS:
            shop = given.shop if given.shop in app.shops.names else None
            return product_conditions(ProductFilter(shop=shop, asks=one_of(Asks, given.price), words=given.q))
        case TableName.ITEMS:
            valued = VALUED.get(given.valued)
            return item_conditions(ItemFilter(state=one_of(ItemState, given.state), words=given.q, valued=valued))
        case TableName.OFFERS if given.product:
            return [column_is(what, "product_id", given.product)]
        case TableName.PRICE_POINTS if given.item:
            return [column_is(what, "item_id", given.item)]
        case _:
            return ()


Paged: TypeAlias = Callable[[PageRequest, ListFilters, Any], Awaitable[ListPage[Any]]]


async def _jobs(page: PageRequest, given: ListFilters, after: int | None) -> ListPage[JobView]:
    named = {name: getattr(given, name).strip() for name in WantedJobs.__struct_fields__}
    return await page.app.inspector.page(await job_filter(page, WantedJobs(**named), before=after, limit=_ROWS))


_RECORDS: Final[Mapping[str, tuple[type[Any], Paged]]] = {
    "jobs": (JobView, _jobs),
    "alerts": (AlertRow, lambda page, _given, after: page.app.watch.alerts.page(after=after, limit=_ROWS)),
    "feeds": (Feed, lambda page, _given, after: page.app.feeds.store.page(after=after or 0, limit=_ROWS)),
    "runs": (Run, lambda page, _given, after: page.app.runs.page(page.now, before=after, limit=_ROWS)),
    "segments": (
        SegmentLine,
        lambda page, _given, after: SegmentPages(page.app.database).list(after=after or "", limit=_ROWS),
    ),
    "watches": (WatchLine, lambda page, _given, after: page.app.price_watches.page(after=after, limit=_ROWS)),
}
"""Lists that are no tables for analysis: the columns are the fields of their records."""


async def _rows(
    page: PageRequest, given: ListFilters, fields: Sequence[Column], read: Paged
) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
    after: Any = None
    while True:
        found = await read(page, given, after)
        yield [
            [
                msgspec.json.encode(value) if field.shape in _STRUCTURED and value is not None else value
                for field in fields
                for value in [getattr(record, field.name)]
            ]
            for record in found.items
        ]
        if (after := found.next) is None:
            return


@router.get("/download/{what}.{ending}")
async def download(
    page: ReaderPage, what: str, ending: Literal["csv", "jsonl"], given: Annotated[ListFilters, Query()]
) -> StreamingResponse:
    """All rows of a list. CSV for Excel begins with a mark, has ids as text, and no cell of it is a formula."""
    excel, form = given.excel == "yes", Format(ending)

    def output(file: BinaryIO) -> ExportTarget:
        return ExportTarget(file, safe_cells=excel, ids_as_text=excel, byte_order_mark=excel)

    if what in _RECORDS:
        record, read = _RECORDS[what]
        fields = fields_of(record)
        lines = stream_pages(what, fields, _rows(page, given, fields, read), form, output)
    elif what in _TABLES:
        try:
            selection = _read_selection(TableName(what), given)
            conditions = await _find_conditions(page.app, selection.what, given)
        except ValueError as error:
            raise RequestRefused(400, str(error)) from None
        exporter = Exporter(page.app.database)
        await exporter.check(selection)
        lines = exporter.stream(selection, form, output, conditions)
    else:
        raise NotFound(f"download of {what}: there are {', '.join((*_TABLES, *_RECORDS))}")
    headers = {"Content-Disposition": f'attachment; filename="{what}.{ending}"'}
    # Once the response has begun, it cannot say any more that the database does not answer.
    first = await anext(lines, b"")
    return StreamingResponse(_continue(first, lines), media_type=_TYPES[form], headers=headers)


async def _continue(first: bytes, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(lines):
        yield first
        async for some in lines:
            yield some
