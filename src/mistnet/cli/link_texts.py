"""The links commands that read no database: find URLs in texts, name URLs."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import lines_of
from mistnet.settings import Settings
from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.links.address import RefusedUrl
from mistnet.shops.links.finding import find_urls
from mistnet.shops.links.mentions import find_codes, find_title
from mistnet.shops.links.naming import canonical_link
from mistnet.shops.model import LinkKind
from mistnet.shops.shop import WEB

SOME_BAD: Final = 3
Lines = Annotated[str, typer.Argument(metavar="[FILE]", help="JSON lines; - or nothing reads standard input.")]
Answer = dict[str, Any]
Asked = TypeVar("Asked", bound=msgspec.Struct)


class TextLine(msgspec.Struct, frozen=True):
    text: str


class UrlLine(msgspec.Struct, frozen=True):
    url: str


@shared_options
async def extract(invocation: Invocation, file: Lines = "-") -> int:
    """Find the URLs and Tao-kouling codes in texts: JSON lines in, JSON lines out, one for each and in order.

    A line is {"text"}; its answer is {"urls", "codes", "title_hint"}: each URL once, as it stands in the text; the
    title is what the Taobao app wrote beside a code or a short link. The answer to an invalid line is
    {"error", "line"}; then the exit code is 3.
    """
    shops = known_shops(invocation.settings)
    return _answer_all(file, TextLine, partial(extracted, shops=shops))


@shared_options
async def canonical_names(invocation: Invocation, file: Lines = "-") -> int:
    """Print the canonical names of URLs: JSON lines in, JSON lines out, one for each and in order.

    A line is {"url"}; its answer is {"platform", "kind", "ids", "canonical", "refused", "url_norm"}. The platform is
    null for any host that is no shop's. "canonical" is null where a link names no thing and no page by itself;
    "url_norm" is the key under which a link is stored; "refused" says why a link is never followed. A line that
    cannot be read is answered by {"error", "line"}; then the exit code is 3.
    """
    return _answer_all(file, UrlLine, partial(named, shops=known_shops(invocation.settings)))


def known_shops(settings: Settings) -> ShopCatalog:
    """The shops of mistnet and of the plugins."""
    if not settings.plugins:
        return CATALOG
    from mistnet.shops.plugins import load_catalog  # noqa: PLC0415 (it takes long to load)

    return load_catalog(settings.plugins)


def extracted(asked: TextLine, shops: ShopCatalog = CATALOG) -> Answer:
    urls = dict.fromkeys(found.url for found in find_urls(asked.text, shops))
    codes = [found.code for found in find_codes(asked.text)]
    return {"urls": [*urls], "codes": codes, "title_hint": find_title(asked.text)}


def named(asked: UrlLine, shops: ShopCatalog = CATALOG) -> Answer:
    name = canonical_link(asked.url, shops)
    if isinstance(name, RefusedUrl):
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


def _answer_all(file: str, shape: type[Asked], answer: Callable[[Asked], Answer]) -> int:
    """Each line is answered, and the answer flushed, before the next is read: a pipeline may wait for it."""
    decoder = msgspec.json.Decoder(shape)
    bad = 0
    with lines_of(file) as lines:
        for number, line in enumerate(lines, 1):
            result = _answer_line(line, number, decoder, answer)
            bad += "error" in result
            sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
            sys.stdout.buffer.flush()
    if bad:
        field = shape.__struct_fields__[0]
        complain(f'{bad} of the lines could not be read: a line is a JSON object such as {{"{field}": "…"}}')
    return SOME_BAD if bad else 0


def _answer_line(
    line: bytes, number: int, decoder: msgspec.json.Decoder[Asked], answer: Callable[[Asked], Answer]
) -> Answer:
    try:
        asked = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        return {"error": str(error), "line": number}
    return answer(asked)
