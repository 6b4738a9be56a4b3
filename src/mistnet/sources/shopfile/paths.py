"""Find values in answers: with dotted paths in JSON, with CSS selectors in HTML. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from mistnet.shops.extraction.documents import parse_html
from mistnet.sources.market.amounts import IllegibleAmount

EVERY: Final = "*"
_KEPT: Final = 20_000
_json = msgspec.json.Decoder(float_hook=Decimal).decode


class FoundListing(Protocol):
    """One listing that was found and is not decoded yet."""

    def value(self, path: str) -> object | None:
        """The value at this path, or None."""
        ...

    @property
    def payload(self) -> bytes: ...


class Tree(Protocol):
    """An answer in which listings are searched."""

    def listings(self, path: str) -> Sequence[FoundListing]: ...

    def value(self, path: str) -> object | None: ...

    def lack(self, path: str) -> str | None:
        """Why there can be no listings here, or None if there could be."""
        ...


def problem_of_path(path: str) -> str | None:
    if any(not part for part in path.split(".")):
        return f"{path!r} has an empty part; write names with dots between, such as results.*.price"
    return None


def problem_of_selector(selector: str) -> str | None:
    css, _attribute = _split_selector(selector)
    if not css:
        return None
    try:
        LexborHTMLParser("<p></p>").css(css)
    except SelectolaxError as error:
        return f"{css!r} is no CSS selector: {error}"
    return None


class JsonTree:
    """An answer in JSON. Raises IllegibleAmount if it is not JSON."""

    def __init__(self, body: bytes) -> None:
        try:
            try:
                self._data: object = _json(body)
            except msgspec.DecodeError:
                # msgspec is fast but strict: with one invalid character in a listing, still read the others.
                self._data = json.loads(body, parse_float=Decimal)
        except (ValueError, RecursionError, ArithmeticError) as error:
            raise IllegibleAmount(f"it is no JSON: {error}") from None

    def listings(self, path: str) -> Sequence[FoundListing]:
        found = _walk(self._data, path.split("."))
        return [JsonFound(each) for one in found for each in (one if isinstance(one, list) else [one])]

    def value(self, path: str) -> object | None:
        return next(_walk(self._data, path.split(".")), None)

    def lack(self, path: str) -> str | None:
        """An empty list is a valid answer; a missing one is not."""
        before = path.split(".")
        before = before[: before.index(EVERY)] if EVERY in before else before[:-1]
        if next(_walk(self._data, before), None) is None:
            return f"there is no {'.'.join(before)!r} in it"
        return None


class JsonFound:
    """A listing of any shape."""

    def __init__(self, data: object) -> None:
        self._data = data

    def value(self, path: str) -> object | None:
        return next((each for each in _walk(self._data, path.split(".")) if each is not None), None)

    @property
    def payload(self) -> bytes:
        return json.dumps(self._data, default=str, ensure_ascii=False).encode("utf-8", "replace")[:_KEPT]


def _walk(data: Any, path: Sequence[str]) -> Iterator[Any]:
    """All values that match the path. `*` matches everything in a list or an object."""
    if not path:
        yield data
        return
    part, rest = path[0], path[1:]
    if isinstance(data, Mapping):
        inside = list(data.values()) if part == EVERY else [data[part]] if part in data else []
    elif isinstance(data, list):
        inside = data if part == EVERY else [data[int(part)]] if part.isdecimal() and int(part) < len(data) else []
    else:
        inside = []
    for each in inside:
        yield from _walk(each, rest)


class HtmlTree:
    def __init__(self, text: str) -> None:
        self._page = parse_html(text)

    def listings(self, path: str) -> Sequence[FoundListing]:
        return [HtmlFound(node) for node in self._page.css(path)]

    def value(self, path: str) -> object | None:
        return _value(self._page.root, path)

    def lack(self, path: str) -> str | None:  # noqa: ARG002 (any page may show nothing)
        return None


class HtmlFound:
    def __init__(self, node: LexborNode) -> None:
        self._node = node

    def value(self, path: str) -> object | None:
        return _value(self._node, path)

    @property
    def payload(self) -> bytes:
        return (self._node.html or "").encode("utf-8", "replace")[:_KEPT]


def _value(node: LexborNode | None, path: str) -> str | None:
    """The text or attribute of what a selector finds. Without a selector: of the listing itself."""
    css, attribute = _split_selector(path)
    if css and node is not None:
        node = node.css_first(css)
    if node is None:
        return None
    found = node.attributes.get(attribute) if attribute else node.text(separator=" ", strip=True)
    text = " ".join((found or "").split())
    return text or None


def _split_selector(path: str) -> tuple[str, str]:
    """Split `a.price@content` into selector and attribute; an @ inside brackets or quotes belongs to the selector."""
    css, at, attribute = path.rpartition("@")
    if not at or any(sign in attribute for sign in "]\"') "):
        return path.strip(), ""
    return css.strip(), attribute.strip()
