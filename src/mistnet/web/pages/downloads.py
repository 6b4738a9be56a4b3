"""Downloads: what a list of the dashboard shows, with its filters and with all its rows, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from mistnet.app import App
from mistnet.data.export import Exporter
from mistnet.data.model import Selection, TableName
from mistnet.data.store.sources import Condition, column_is
from mistnet.kit.export import ExportTarget, Format
from mistnet.prices.model import ItemState
from mistnet.prices.store.item_listing import ItemFilter, item_conditions
from mistnet.shops.model import LinkKind, LinkState
from mistnet.shops.service import named_link
from mistnet.shops.store.link_pages import LinkFilter, link_conditions
from mistnet.shops.store.product_pages import Asks, ProductFilter, product_conditions
from mistnet.social.accounts import AccountState
from mistnet.social.model import Platform, X
from mistnet.social.store.account_pages import account_conditions
from mistnet.web.errors import NotFound, RequestRefused
from mistnet.web.fields import LARGEST_ID, without_nul
from mistnet.web.pages.posts import read_day
from mistnet.web.pages.products import VALUED
from mistnet.web.pages.render import ReaderPage

router = APIRouter(include_in_schema=False)
E = TypeVar("E", AccountState, LinkState, LinkKind, ItemState, Asks)
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
    account: _Id | None = None
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
    accounts = [str(given.account)] if given.account else [given.author] if given.author.strip() else []
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
        accounts = [str(given.account)] if given.account else []
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


@router.get("/download/{what}.{ending}")
async def download(
    page: ReaderPage, what: str, ending: Literal["csv", "jsonl"], given: Annotated[ListFilters, Query()]
) -> StreamingResponse:
    """All rows of a list. CSV for Excel begins with a mark, has ids as text, and no cell of it is a formula."""
    excel = given.excel == "yes"
    choose = _LISTS.get(what)
    if choose is None:
        raise NotFound(f"download of {what}: there are {', '.join(_LISTS)}")
    try:
        selection, conditions = await choose(page.app, given)
    except ValueError as error:
        raise RequestRefused(400, str(error)) from None
    exporter, form = Exporter(page.app.database), Format(ending)
    await exporter.check(selection)
    lines = exporter.stream(
        selection,
        form,
        lambda file: ExportTarget(file, safe_cells=excel, ids_as_text=excel, byte_order_mark=excel),
        conditions,
    )
    headers = {"Content-Disposition": f'attachment; filename="{what}.{ending}"'}
    return StreamingResponse(lines, media_type=_TYPES[form], headers=headers)
