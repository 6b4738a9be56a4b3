"""Downloads: what a list of the dashboard shows, with its filters and with all its rows, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeAlias, TypeVar

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from mistnet.app import App
from mistnet.data.export import Exporter
from mistnet.data.model import Selection, TableName
from mistnet.data.store import Condition, column_is
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
from mistnet.shops.service import named_link
from mistnet.shops.store.link_pages import LinkFilter, link_conditions
from mistnet.shops.store.product_pages import Asks, ProductFilter, product_conditions
from mistnet.social.accounts import AccountState
from mistnet.social.feeds import Feed
from mistnet.social.model import Platform, X
from mistnet.social.store.account_pages import account_conditions
from mistnet.web.errors import NotFound, RequestRefused
from mistnet.web.fields import LARGEST_ID, without_nul
from mistnet.web.pages.jobs import WantedJobs, job_filter
from mistnet.web.pages.posts import read_day
from mistnet.web.pages.products import VALUED
from mistnet.web.pages.render import PageRequest, ReaderPage

router = APIRouter(include_in_schema=False)
E = TypeVar("E", AccountState, LinkState, LinkKind, ItemState, Asks)
_ROWS: Final = 500
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


Wanted: TypeAlias = tuple[Selection, Sequence[Condition]]
Choose: TypeAlias = Callable[[App, ListFilters], Awaitable[Wanted]]


async def _accounts(_app: App, given: ListFilters) -> Wanted:
    platform = Platform(given.platform or X)
    selection = Selection(what=TableName.ACCOUNTS)
    return selection, account_conditions(platform, given.q, _one_of(AccountState, given.state))


async def _posts(_app: App, given: ListFilters) -> Wanted:
    accounts = [each for each in (given.account or given.author,) if each.strip()]
    selection = Selection(
        what=TableName.POSTS,
        accounts=accounts,
        platform=given.platform or None,
        query=given.q if given.q.strip() else None,
        since=read_day(given.since),
        until=read_day(given.until, later=1),
    )
    own = [column_is(TableName.POSTS, "conversation_id", given.conversation)] if given.conversation else []
    return selection, own


async def _links(app: App, given: ListFilters) -> Wanted:
    if known := await named_link(app, given.q):
        return Selection(what=TableName.LINKS), [column_is(TableName.LINKS, "id", known)]
    filters = LinkFilter(
        lane=given.lane or None,
        state=_one_of(LinkState, given.state),
        kind=_one_of(LinkKind, given.kind),
        words=given.q,
    )
    return Selection(what=TableName.LINKS), link_conditions(filters)


async def _products(app: App, given: ListFilters) -> Wanted:
    shop = given.shop if given.shop in app.shops.names else None
    filters = ProductFilter(shop=shop, asks=_one_of(Asks, given.price), words=given.q)
    return Selection(what=TableName.PRODUCTS), product_conditions(filters)


async def _items(_app: App, given: ListFilters) -> Wanted:
    filters = ItemFilter(state=_one_of(ItemState, given.state), words=given.q, valued=VALUED.get(given.valued))
    return Selection(what=TableName.ITEMS), item_conditions(filters)


async def _offers(_app: App, given: ListFilters) -> Wanted:
    own = [column_is(TableName.OFFERS, "product_id", given.product)] if given.product else []
    return Selection(what=TableName.OFFERS), own


async def _points(_app: App, given: ListFilters) -> Wanted:
    own = [column_is(TableName.PRICE_POINTS, "item_id", given.item)] if given.item else []
    return Selection(what=TableName.PRICE_POINTS), own


def _whole(what: TableName) -> Choose:
    """A table whose only filters are an account and a segment."""

    async def choose(_app: App, given: ListFilters) -> Wanted:
        accounts = [given.account] if given.account.strip() else []
        return Selection(what=what, accounts=accounts, segment=given.segment or None), ()

    return choose


_LISTS: Final[Mapping[str, Choose]] = {
    TableName.ACCOUNTS: _accounts,
    TableName.POSTS: _posts,
    TableName.LINKS: _links,
    TableName.PRODUCTS: _products,
    TableName.ITEMS: _items,
    TableName.OFFERS: _offers,
    TableName.PRICE_POINTS: _points,
    **{
        each: _whole(each)
        for each in (
            TableName.CALLS,
            TableName.COVERAGE,
            TableName.FOLLOW_EVENTS,
            TableName.POST_LINKS,
            TableName.SEGMENT_MEMBERS,
            TableName.SUGGESTIONS,
        )
    },
}


def _one_of(known: type[E], word: str) -> E | None:
    return known(word) if word in set(known) else None


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
        yield [[_cell(getattr(record, field.name), field) for field in fields] for record in found.items]
        if (after := found.next) is None:
            return


def _cell(value: Any, field: Column) -> Any:
    structured = field.shape in (ColumnShape.JSON, ColumnShape.LIST)
    return msgspec.json.encode(value) if structured and value is not None else value


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
    elif what in _LISTS:
        try:
            selection, conditions = await _LISTS[what](page.app, given)
        except ValueError as error:
            raise RequestRefused(400, str(error)) from None
        exporter = Exporter(page.app.database)
        await exporter.check(selection)
        lines = exporter.stream(selection, form, output, conditions)
    else:
        raise NotFound(f"download of {what}: there are {', '.join((*_LISTS, *_RECORDS))}")
    headers = {"Content-Disposition": f'attachment; filename="{what}.{ending}"'}
    # Once the response has begun, it cannot say any more that the database does not answer.
    first = await anext(lines, b"")
    return StreamingResponse(_continue(first, lines), media_type=_TYPES[form], headers=headers)


async def _continue(first: bytes, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(lines):
        yield first
        async for some in lines:
            yield some
