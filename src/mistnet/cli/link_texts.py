"""The links commands that need nothing but their input: find URLs in texts, give URLs their one name."""

import sys
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import lines_of
from mistnet.shops.links.address import RefusedUrl
from mistnet.shops.links.finding import find_urls
from mistnet.shops.links.mentions import find_codes, find_title
from mistnet.shops.links.naming import canonical_link
from mistnet.shops.model import Canonical, LinkKind, Shop

SOME_BAD: Final = 3
Lines = Annotated[str, typer.Argument(metavar="[FILE]", help="JSON lines; - or nothing reads standard input.")]
Answer = dict[str, Any]
Asked = TypeVar("Asked", bound=msgspec.Struct)


class TextLine(msgspec.Struct, frozen=True):
    text: str


class UrlLine(msgspec.Struct, frozen=True):
    url: str


@shared_options
async def extract(invocation: Invocation, file: Lines = "-") -> int:  # noqa: ARG001 (reads no settings)
    """Find the URLs and Tao-kouling codes in texts: JSON lines in, JSON lines out, one for each and in order.

    A line is {"text"}; its answer is {"urls", "codes", "title_hint"}: each URL once, as it stands in the text; the
    title is what the Taobao app wrote beside a code or a short link. A line that cannot be read is answered by
    {"error", "line"}; then the exit code is 3.
    """
    return _answer_all(file, TextLine, extracted)


@shared_options
async def canonical_names(invocation: Invocation, file: Lines = "-") -> int:  # noqa: ARG001 (reads no settings)
    """Give URLs their one name: JSON lines in, JSON lines out, one for each and in order.

    A line is {"url"}; its answer is {"platform", "kind", "ids", "canonical", "refused", "url_norm"}. The platform is
    null for any host that is no shop's. "canonical" is null where a link names no thing and no page by itself;
    "url_norm" is the key under which a link is stored; "refused" says why a link is never followed. A line that
    cannot be read is answered by {"error", "line"}; then the exit code is 3.
    """
    return _answer_all(file, UrlLine, named)


def extracted(asked: TextLine) -> Answer:
    urls = dict.fromkeys(found.url for found in find_urls(asked.text))
    codes = [found.code for found in find_codes(asked.text)]
    return {"urls": [*urls], "codes": codes, "title_hint": find_title(asked.text)}


def named(asked: UrlLine) -> Answer:
    name = canonical_link(asked.url)
    if isinstance(name, RefusedUrl):
        nothing: Answer = {"platform": None, "kind": "reject", "ids": {}, "canonical": None}
        return {**nothing, "refused": name.reason, "url_norm": None}
    return {
        "platform": None if name.shop is Shop.WEB else name.shop.value,
        "kind": _kind(name),
        "ids": _ids(name),
        "canonical": name.url_norm if _is_name(name) else None,
        "refused": None,
        "url_norm": name.url_norm,
    }


def _kind(name: Canonical) -> str:
    """A shop's page that is none of the known kinds is `other`; a page elsewhere is a page."""
    return "other" if name.kind is LinkKind.PAGE and name.shop is not Shop.WEB else name.kind.value


def _ids(name: Canonical) -> dict[str, str]:
    """The ids that name a thing, as text; those it lacks are left out."""
    if not name.item_id:
        return {}
    told = {"region": name.region, "shop_id": name.shop_id, "item_id": name.item_id, "variant_id": name.variant}
    return {field: value for field, value in told.items() if value is not None}


def _is_name(name: Canonical) -> bool:
    return name.item_id is not None or (name.shop is Shop.WEB and name.kind is LinkKind.PAGE)


def _answer_all(file: str, shape: type[Asked], answer: Callable[[Asked], Answer]) -> int:
    """Each line is answered, and the answer flushed, before the next is read: a pipeline may wait for it."""
    decoder = msgspec.json.Decoder(shape)
    bad = 0
    with lines_of(file) as lines:
        for number, line in enumerate(lines, 1):
            told = _answered(line, number, decoder, answer)
            bad += "error" in told
            sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
            sys.stdout.buffer.flush()
    if bad:
        field = shape.__struct_fields__[0]
        complain(f'{bad} of the lines could not be read: a line is a JSON object such as {{"{field}": "…"}}')
    return SOME_BAD if bad else 0


def _answered(
    line: bytes, number: int, decoder: msgspec.json.Decoder[Asked], answer: Callable[[Asked], Answer]
) -> Answer:
    try:
        asked = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        return {"error": str(error), "line": number}
    return answer(asked)
