"""The command that reads a saved page or shop answer: the product, its price, and where each value was found."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final

import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import bytes_of
from mistnet.cli.link_texts import known_shops
from mistnet.cli.output import Grid, document
from mistnet.shops.catalog import ShopCatalog
from mistnet.shops.extraction.facts import find_doubt
from mistnet.shops.extraction.read import read_page
from mistnet.shops.links.address import RefusedUrl
from mistnet.shops.links.naming import canonical_link
from mistnet.shops.model import PageFacts, PageVerdict

_PRODUCT: Final = ("title", "brand", "sku", "image_url", "canonical_url")
_OFFER: Final = (
    *("amount", "amount_max", "list_amount", "currency", "kind"),
    *("availability", "sold_count", "rating_count", "bid_count"),
)
_READ: Final = (PageVerdict.OFFER, PageVerdict.NO_PRICE)
_TITLES: Final = {
    PageVerdict.OFFER: "an offer",
    PageVerdict.NO_PRICE: "no price",
    PageVerdict.BLOCKED: "blocked",
    PageVerdict.GONE: "gone",
}
SavedPage = Annotated[str, typer.Argument(metavar="FILE", help="Saved HTML or JSON; - reads standard input.")]
Address = Annotated[str, typer.Option("--url", metavar="URL", help="Where the page came from.")]
ContentType = Annotated[
    str | None, typer.Option("--content-type", metavar="TYPE", help="The answer's Content-Type header.")
]


@shared_options
async def extract(invocation: Invocation, file: SavedPage, *, url: Address, content_type: ContentType = None) -> None:
    """Read a saved page or shop answer, without any request: product and offer, each value with its evidence."""
    shops = known_shops(invocation.settings)
    facts = read_page(bytes_of(file), url=url, content_type=content_type, shops=shops)
    doubted = find_doubt(facts, ())
    reason = f": {facts.reason}" if facts.reason else ""
    head = f"{url}\n{_TITLES[facts.verdict]}{reason}" + (f"\nin doubt: {doubted}" if doubted else "")
    rows = list(_rows(facts))
    grids = [Grid(columns=("field", "value", "where", "sure", "snippet"), rows=rows)] if rows else []
    shown = document(
        url=url,
        verdict=facts.verdict,
        reason=facts.reason,
        product={**_name(url, shops), **{name: getattr(facts, name) for name in _PRODUCT}},
        offer={name: _shown(getattr(facts, name)) for name in _OFFER} if facts.verdict in _READ else None,
        doubt=doubted,
        evidence=list(facts.evidence),
    )
    invocation.out.show(shown, head, *grids)


def _name(url: str, shops: ShopCatalog) -> dict[str, Any]:
    """What the address itself says: the shop and the ids."""
    name = canonical_link(url, shops)
    if isinstance(name, RefusedUrl):
        return {"platform": None, "item_id": None, "url": None}
    ids = {key: getattr(name, key) for key in ("region", "shop_id", "item_id", "variant")}
    return {"platform": name.shop.name, **ids, "url": name.url_norm}


def _shown(value: object) -> object:
    """Amounts are text, so that no reader makes floats of them."""
    return f"{value:f}" if isinstance(value, Decimal) else value


def _rows(facts: PageFacts) -> Iterator[Sequence[str]]:
    proofs = {each.field: each for each in facts.evidence}
    for name in (*_PRODUCT, *_OFFER):
        value = getattr(facts, name)
        proof = proofs.get(name) or (proofs.get("amount") if name == "amount_max" else None)
        if value is not None and (proof or name != "kind"):
            found = (proof.path, f"{proof.confidence:.2f}", proof.snippet) if proof else ("", "", "")
            yield (name, str(_shown(value)), *found)
    if verdict := proofs.get("verdict"):
        yield ("verdict", facts.verdict, verdict.path, f"{verdict.confidence:.2f}", verdict.snippet)
