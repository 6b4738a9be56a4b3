"""Commands for products: list them, show one with its offers, request visits, export offers."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from msgspec.structs import asdict

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import BeforeOption, FileOption, LimitOption, named_links
from mistnet.cli.output import Grid, at, document, next_page
from mistnet.cli.write_out import ForceOption, FormatOption, OutputOption, OutputTarget, SafeOption, write_out
from mistnet.kit.export import Target
from mistnet.kit.text import counted, money, read_number
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import CATALOG
from mistnet.shops.errors import ProductNotFound
from mistnet.shops.model import ProductId, bounded
from mistnet.shops.service import hints_of, waiting_links
from mistnet.shops.store.crawls import call_for_products
from mistnet.shops.store.link_pages import LinkPages
from mistnet.shops.store.product_pages import Asks, OfferLine, ProductFilter, ProductLine, ProductPages, export_offers

_PAGE: Final = 1_000
_LINKS: Final = 20

Named = Annotated[str, typer.Argument(metavar="ID|URL", help="The product's id, or any URL of it.")]


@shared_options
async def list_products(
    invocation: Invocation,
    *,
    shop: Annotated[
        str | None, typer.Option("--shop", metavar="|".join(CATALOG.names), help="Only products of this shop.")
    ] = None,
    asks: Annotated[
        Asks | None, typer.Option("--asks", metavar="|".join(Asks), help="Only those with a price, without, or gone.")
    ] = None,
    words: Annotated[str, typer.Option("--words", metavar="TEXT", help="Only those whose title or URL has this.")] = "",
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show products with their current prices, the newest first."""
    wanted = ProductFilter(shop=shop, asks=asks, words=words, before=before, limit=limit)
    async with open_app(invocation.settings) as app:
        require_shop(app, shop)
        found = await ProductPages(app.database).list(wanted)
        waiting = await waiting_links(app)
    grid = Grid(
        columns=("id", "shop", "price", "availability", "title", "last seen (UTC)"),
        rows=[
            (
                *(str(each.id), each.platform),
                "gone" if each.gone_at else money(each.amount, each.currency, each.amount_max),
                *(each.availability or "", (each.title or each.url)[:80], at(each.last_seen_at)),
            )
            for each in found.items
        ],
        empty="no products yet: they appear once links to shops are visited",
    )
    shown = document(
        products=[_fields(each) for each in found.items], next_before=_text(found.next), waiting_links=waiting
    )
    invocation.out.show(shown, grid, *next_page(found.next), *hints_of(waiting))


@shared_options
async def show(
    invocation: Invocation,
    product: Named,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many offers at most.")] = 20,
) -> None:
    """Show a product: its offers over time with their evidence, and the links that name it."""
    async with open_app(invocation.settings) as app:
        found = await product_called(app, product)
        offers = (await ProductPages(app.database).offers(found.id, limit=limit)).items
        links = await LinkPages(app.database).of_product(found.id, limit=_LINKS)
    head = f"product {found.id}: {found.title or found.url}"
    gone = [f"gone since {at(found.gone_at)} UTC"] if found.gone_at else []
    grid = Grid(
        title="offers, the latest first",
        columns=("observed (UTC)", "last seen (UTC)", "seen", "price", "list price", "sold", "read from", "doubt"),
        rows=[_offer_row(each) for each in offers],
        empty="no offer yet",
    )
    mentioned = Grid(
        title="links",
        columns=("id", "state", "mentions", "url"),
        rows=[(str(each.id), each.state, str(each.mentions), each.url_norm) for each in links],
    )
    shown = document(
        product=_fields(found),
        offers=[
            {**asdict(each), "product_id": str(each.product_id), "link_id": _text(each.link_id), **_amounts(each)}
            for each in offers
        ],
        links=[{"id": str(each.id), "url": each.url_norm, "state": each.state} for each in links],
    )
    invocation.out.show(shown, head, found.url, *gone, grid, mentioned)


@shared_options
async def refresh(
    invocation: Invocation,
    named: Annotated[list[str] | None, typer.Argument(metavar="[ID|URL]...", help="Ids or URLs of products.")] = None,
    *,
    source: FileOption = None,
    every: Annotated[bool, typer.Option("--all", help="All products that are not gone.")] = False,
    shop: Annotated[
        str | None,
        typer.Option("--shop", metavar="|".join(CATALOG.names), help="With --all: only those of this shop."),
    ] = None,
) -> None:
    """Queue new visits of products. Workers make them, at each shop's rate."""
    if bool(named or source) == every:
        raise typer.BadParameter("name products, or pass --all")
    async with open_app(invocation.settings) as app:
        require_shop(app, shop)
        if every:
            ids = await _all_ids(app, shop)
        else:
            ids = [(await product_called(app, each)).id for each in named_links(named, source)]
        requested = await call_for_products(app.database, app.job_writer, ids)
    said = f"{counted(requested.created, 'visit')} queued for {counted(len(ids), 'product')}"
    already = requested.links - requested.created
    more = f"; {already:,} {'was' if already == 1 else 'were'} queued already" if already else ""
    shown = document(products=len(ids), links=requested.links, created=requested.created)
    invocation.out.show(shown, said + more)


@shared_options
async def export(
    invocation: Invocation,
    *,
    format_: FormatOption = None,
    output: OutputOption = None,
    doubted: Annotated[bool, typer.Option("--doubted", help="Offers that are not believed too.")] = False,
    safe: SafeOption = False,
    force: ForceOption = False,
) -> None:
    """Export all offers, each with its product. Amounts are exact, as text."""

    place = OutputTarget.of(format_, output, force=force, safe=safe)

    async def offers(app: App, target: Target) -> int:
        return await export_offers(app.database, place.format, target, doubted=doubted)

    await write_out(invocation, place, offers, what="offers")


def require_shop(app: App, name: str | None) -> None:
    """Plugins bring shops, so a name is checked once they are loaded."""
    if name is not None and name not in app.shops.names:
        known = ", ".join(map(repr, app.shops.names))
        raise typer.BadParameter(f"{name!r} is not one of {known}.", param_hint="'--shop'")


async def product_called(app: App, given: str) -> ProductLine:
    """By its id, or by any URL of it that was found in a post."""
    pages = ProductPages(app.database)
    if (number := read_number(given)) is not None:
        found = await pages.one(ProductId(number))
    else:
        found = await _of_url(app, pages, given)
    if found is None:
        raise ProductNotFound(given)
    return found


async def _of_url(app: App, pages: ProductPages, given: str) -> ProductLine | None:
    """A short link's product is that of the link it leads to."""
    links, name = LinkPages(app.database), link_rules.canonical_link(given, app.shops)
    link_id = None if isinstance(name, link_rules.RefusedUrl) else await links.called(bounded(name.url_norm))
    while link_id is not None:
        link = await links.one(link_id)
        if link is None or link.leads_to is None:
            return await pages.one(link.product_id) if link and link.product_id else None
        link_id = link.leads_to
    return None


async def _all_ids(app: App, shop: str | None) -> list[ProductId]:
    pages, found, before = ProductPages(app.database), list[ProductId](), None
    while True:
        page = await pages.list(ProductFilter(shop=shop, before=before, limit=_PAGE))
        found += [each.id for each in page.items if each.gone_at is None]
        if page.next is None:
            return found
        before = page.next


def _offer_row(line: OfferLine) -> Sequence[str]:
    price = money(line.amount, line.currency, line.amount_max)
    sold = "" if line.sold_count is None else f"{line.sold_count:,}"
    seen = (at(line.observed_at), at(line.last_seen_at), str(line.times_seen))
    return *seen, price, money(line.list_amount, line.currency), sold, line.path, line.doubt or ""


def _fields(line: ProductLine) -> dict[str, Any]:
    return {**asdict(line), "offer_id": _text(line.offer_id), **_amounts(line)}


def _amounts(line: ProductLine | OfferLine) -> dict[str, str | None]:
    """Exact, as text: a float would change them."""
    amounts = {"amount": line.amount, "amount_max": line.amount_max, "list_amount": line.list_amount}
    return {name: None if amount is None else f"{amount:f}" for name, amount in amounts.items()}


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
