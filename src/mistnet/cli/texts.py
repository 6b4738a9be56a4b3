"""Commands that read no database: find and name links, read price texts, read saved pages."""

import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import argument, bytes_of, flag, lines_of, option
from mistnet.cli.output import Grid, complain, document
from mistnet.settings import Settings
from mistnet.shops import extraction, links
from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.model import LinkKind, PageFacts, PageVerdict
from mistnet.shops.shop import WEB

SOME_BAD: Final = 3
Lines = Annotated[str, argument("[FILE]", "JSON lines; - or nothing reads standard input.")]
Answer = dict[str, Any]
Asked = TypeVar("Asked", bound=msgspec.Struct)


class TextLine(msgspec.Struct, frozen=True):
    text: str


class UrlLine(msgspec.Struct, frozen=True):
    url: str


class PriceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A price text, and what helps to tell its currency."""

    text: str | None
    currency_hint: str | None = None
    site: str | None = None


@shared_options
async def extract_links(invocation: Invocation, file: Lines = "-") -> int:
    """Find the URLs and Tao-kouling codes in texts: JSON lines in, JSON lines out, one for each and in order.

    A line is {"text"}; its answer is {"urls", "codes", "title_hint"}: each URL once, as it is written in the text; the
    title is what the Taobao app wrote beside a code or a short link. The answer to an invalid line is
    {"error", "line"}; then the exit code is 3.
    """
    shops = known_shops(invocation.settings)
    return _answer_all(file, TextLine, '{"text": "…"}', partial(find_mentions, shops=shops))


@shared_options
async def canonical_names(invocation: Invocation, file: Lines = "-") -> int:
    """Print the canonical names of URLs: JSON lines in, JSON lines out, one for each and in order.

    A line is {"url"}; its answer is {"platform", "kind", "ids", "canonical", "refused", "url_norm"}. The platform is
    null if the host is not a shop's. "canonical" is null if a link names no product and no page;
    "url_norm" is the key under which a link is stored; "refused" says why a link is never followed. A line that
    cannot be read is answered by {"error", "line"}; then the exit code is 3.
    """
    return _answer_all(file, UrlLine, '{"url": "…"}', partial(name_link, shops=known_shops(invocation.settings)))


@shared_options
async def parse_prices(invocation: Invocation, file: Lines = "-") -> int:  # noqa: ARG001 (reads no settings)
    """Read price texts: JSON lines in, JSON lines out, one for each and in order.

    A line is {"text", "currency_hint", "site"}; its answer is {"min", "max", "currency", "kind"}, all null with a
    "reason" if the text states no price. A line that cannot be read is answered by {"error", "line"}; then the
    exit code is 3.
    """
    return _answer_all(file, PriceLine, '{"text": "NT$1,280", "currency_hint": null, "site": null}', read_price)


def _answer_all(file: str, shape: type[Asked], example: str, answer: Callable[[Asked], Answer]) -> int:
    decoder = msgspec.json.Decoder(shape)
    bad = 0
    with lines_of(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                result = answer(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeError) as error:
                result = {"error": str(error), "line": number}
                bad += 1
            sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
            # A pipeline may wait for this answer before it sends the next line.
            sys.stdout.buffer.flush()
    if bad:
        complain(f"{bad} of the lines could not be read: a line is a JSON object such as {example}")
    return SOME_BAD if bad else 0


def known_shops(settings: Settings) -> ShopCatalog:
    """The shops of mistnet and of the plugins."""
    if not settings.plugins:
        return CATALOG
    from mistnet.shops.plugins import load_catalog  # noqa: PLC0415 (it takes long to load)

    return load_catalog(settings.plugins)


def find_mentions(asked: TextLine, shops: ShopCatalog = CATALOG) -> Answer:
    from mistnet.shops.links.mentions import find_codes, find_title  # noqa: PLC0415 (price texts do without)

    urls = dict.fromkeys(found.url for found in links.find_urls(asked.text, shops))
    codes = [found.code for found in find_codes(asked.text)]
    return {"urls": [*urls], "codes": codes, "title_hint": find_title(asked.text)}


def name_link(asked: UrlLine, shops: ShopCatalog = CATALOG) -> Answer:
    name = links.canonical_link(asked.url, shops)
    if isinstance(name, links.RefusedUrl):
        nothing: Answer = {"platform": None, "kind": "reject", "ids": {}, "canonical": None}
        return {**nothing, "refused": name.reason, "url_norm": None}
    # A shop's page that is none of the known kinds is `other`; a page elsewhere is a page.
    other = name.kind is LinkKind.PAGE and name.shop is not WEB
    ids = {"region": name.region, "shop_id": name.shop_id, "item_id": name.item_id, "variant_id": name.variant}
    is_name = name.item_id is not None or (name.shop is WEB and name.kind is LinkKind.PAGE)
    return {
        "platform": None if name.shop is WEB else name.shop.name,
        "kind": "other" if other else name.kind.value,
        "ids": {field: value for field, value in ids.items() if value is not None} if name.item_id else {},
        "canonical": name.url_norm if is_name else None,
        "refused": None,
        "url_norm": name.url_norm,
    }


def read_price(asked: PriceLine) -> Answer:
    price = extraction.parse_price(asked.text or "", currency_hint=asked.currency_hint, site=asked.site)
    if isinstance(price, extraction.NoPrice):
        return {"min": None, "max": None, "currency": None, "kind": None, "reason": price.reason}
    # Amounts are text, so that no reader makes floats of them.
    return {"min": f"{price.min:f}", "max": f"{price.max:f}", "currency": price.currency, "kind": price.kind.value}


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


@shared_options
async def read_saved_page(
    invocation: Invocation,
    file: Annotated[str, argument("FILE", "Saved HTML or JSON; - reads standard input.")],
    *,
    url: Annotated[str, option("--url", "URL", "Where the page came from.")],
    content_type: Annotated[str | None, option("--content-type", "TYPE", "The answer's Content-Type header.")] = None,
    explain: Annotated[
        bool, flag("--explain", "Also what kind of page it is and why, and every amount with its score.")
    ] = False,
) -> None:
    """Read a saved page or shop answer, without any request: product and offer, each value with its evidence."""
    shops = known_shops(invocation.settings)
    reading = extraction.explain_page(bytes_of(file), url=url, content_type=content_type, shops=shops)
    facts = reading.facts
    doubted = extraction.find_doubt(facts, ())
    reason = f": {facts.reason}" if facts.reason else ""
    head = f"{url}\n{_TITLES[facts.verdict]}{reason}" + (f"\nin doubt: {doubted}" if doubted else "")
    rows = list(_evidence_rows(facts))
    grids = [Grid(columns=("field", "value", "where", "sure", "snippet"), rows=rows)] if rows else []
    # What the address itself says: the shop and the ids.
    address: Answer = {"platform": None, "item_id": None, "url": None}
    name = links.canonical_link(url, shops)
    if not isinstance(name, links.RefusedUrl):
        ids = {key: getattr(name, key) for key in ("region", "shop_id", "item_id", "variant")}
        address = {"platform": name.shop.name, **ids, "url": name.url_norm}
    shown = document(
        url=url,
        verdict=facts.verdict,
        reason=facts.reason,
        product={**address, **{name: getattr(facts, name) for name in _PRODUCT}},
        offer={name: getattr(facts, name) for name in _OFFER} if facts.verdict in _READ else None,
        doubt=doubted,
        evidence=list(facts.evidence),
    )
    if explain:
        head += f"\npage: {reading.page_kind}" + (f", sure {reading.confidence:.2f}" if reading.confidence else "")
        grids += _decision(reading)
        shown |= {
            "page_kind": reading.page_kind,
            "confidence": reading.confidence,
            "kind_evidence": list(reading.kind_evidence),
            "candidates": list(reading.candidates),
        }
    invocation.out.show(shown, head, *grids)


def _decision(reading: extraction.PageReading) -> list[Grid]:
    """What the page is, by what; and the amounts that could be its price, the likeliest first."""
    kinds = [(each.path, f"{each.confidence:.2f}", each.snippet) for each in reading.kind_evidence]
    amounts = [
        (
            "*" if each.chosen else "",
            f"{each.score:.2f}",
            f"{each.amount:f}" + (f"-{each.amount_max:f}" if each.amount_max else ""),
            each.currency,
            each.role,
            each.path,
            each.snippet[:60],
            " ".join(name if value == 1 else f"{name}={value:.2g}" for name, value in each.features.items() if value),
        )
        for each in reading.candidates
    ]
    columns = ("", "score", "amount", "currency", "role", "where", "snippet", "features")
    return [
        Grid(
            title="what the page is",
            columns=("where", "weight", "snippet"),
            rows=kinds,
            empty="nothing tells what the page is",
        ),
        Grid(title="amounts on the page", columns=columns, rows=amounts, empty="no amounts were weighed"),
    ]


def _evidence_rows(facts: PageFacts) -> Iterator[Sequence[object]]:
    proofs = {each.field: each for each in facts.evidence}
    for name in (*_PRODUCT, *_OFFER):
        value = getattr(facts, name)
        proof = proofs.get(name) or (proofs.get("amount") if name == "amount_max" else None)
        if value is not None and (proof or name != "kind"):
            found = (proof.path, f"{proof.confidence:.2f}", proof.snippet) if proof else ("", "", "")
            yield (name, f"{value:f}" if isinstance(value, Decimal) else value, *found)
    if verdict := proofs.get("verdict"):
        yield ("verdict", facts.verdict, verdict.path, f"{verdict.confidence:.2f}", verdict.snippet)
