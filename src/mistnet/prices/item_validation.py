"""Validates items from the command line, from files and from the API.

All problems are reported at once, each with its field, its value and what to do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from mistnet.governor.model import SourceName
from mistnet.kit.errors import did_you_mean
from mistnet.prices.model import KNOWN_ATTRIBUTES, BadItem, ItemRequest, attributes_of
from mistnet.shops import links as link_rules
from mistnet.shops.extraction.currencies import CODES
from mistnet.shops.store.links import NOT_CRAWLED

T = TypeVar("T")
Problem: TypeAlias = tuple[str, str, str]
"""Field, value, and what is wrong with it."""

LONGEST_TITLE: Final = 500
LONGEST_REF: Final = 200
MOST_ATTRIBUTES: Final = 30
LONGEST_NAME: Final = 60
LONGEST_VALUE: Final = 300
MOST_EXCLUDED: Final = 50
LONGEST_EXCLUDED: Final = 100
MOST_URLS: Final = 20
LONGEST_URL: Final = 4_000
LEAST_HOURS, MOST_HOURS = 0.1, 8_760.0

PLAIN_FIELDS: Final = ("title", "ref", "attributes", "exclude", "sources", "urls", "currency", "every_hours")
OWN_COLUMNS: Final = (
    *("item_id", "item_state", "item_added_at", "item_changed_at", "item_next_look_at"),
    *("valuation_estimate", "valuation_low", "valuation_high", "valuation_currency", "valuation_points"),
    *("valuation_confidence", "valuation_newest_at", "valuation_valued_at"),
)
"""Columns that an export adds to the fields. An import ignores them."""

KNOWN_COLUMNS: Final = (*PLAIN_FIELDS, *KNOWN_ATTRIBUTES)
_SPELLINGS: Final = {"source": "sources", "url": "urls", "excluded": "exclude", "every": "every_hours"}
# PostgreSQL refuses NUL in text, and no driver encodes half of a surrogate pair.
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_PASSWORD: Final = re.compile(r"//[^/\s@]*@")
_SEPARATORS: Final = {
    "exclude": re.compile(r"[;\r\n]+"),
    "sources": re.compile(r"[;,\s]+"),
    "urls": re.compile(r"\s+|;(?=https?://)"),
}


@lru_cache(maxsize=1_024)
def name_of(written: str) -> str:
    """The normalized name of an attribute; empty if it has no letter."""
    return next(iter(attributes_of({written: "-"})), "")


def field_called(name: str) -> str:
    """The normalized name of a column or option."""
    plain = name_of(name)
    return _SPELLINGS.get(plain, plain)


def item_request_of(given: Mapping[str, Any], *, sources: Collection[str]) -> ItemRequest:
    """A request from fields as people write them. Unknown fields are free-form attributes."""

    def read_source(written: object) -> SourceName:
        name = _text(written, LONGEST_NAME)
        if name in sources:
            return SourceName(name)
        listed = ", ".join(sorted(sources)) or "none are set up here"
        guess = did_you_mean(name.lower(), sources)
        raise ValueError(f"there is no such source.{guess} Sources that serve items: {listed}")

    fields = _Fields(given)
    title = fields.read("title", _title)
    request = ItemRequest(
        title=title or "",
        ref=fields.read("ref", lambda written: _text(written, LONGEST_REF)),
        attributes=fields.read_attributes(),
        exclude=tuple(sorted(fields.read_each("exclude", _excluded, most=MOST_EXCLUDED))),
        sources=tuple(sorted(fields.read_each("sources", read_source, most=max(len(sources), 1)))),
        urls=tuple(fields.read_each("urls", _url, most=MOST_URLS)),
        currency=fields.read("currency", _currency),
        every_hours=fields.read("every_hours", _hours),
    )
    if "title" not in fields.known:
        fields.problems.insert(0, ("title", "", "an item needs a title: the words that listings of it have"))
    if fields.problems:
        raise BadItem(fields.problems)
    # Each page once, even if its URL is written in several ways: the first one stays.
    # Backwards, so that of several spellings the first overwrites the others.
    names = ((url, link_rules.canonical_link(url)) for url in reversed(request.urls))
    pages = {name.url_norm: url for url, name in names if not isinstance(name, link_rules.RefusedUrl)}
    urls = tuple(url for url in request.urls if url in pages.values())
    return msgspec.structs.replace(request, urls=urls)


def fields_of(request: ItemRequest) -> dict[str, Any]:
    """The fields of a request, as `item_request_of` takes them."""
    return {name: getattr(request, name) for name in PLAIN_FIELDS}


def problem_text(problem: Problem) -> str:
    field, value, why = problem
    return f"{field} {value[:200]!r}: {why}" if value else f"{field}: {why}"


class _Fields:
    """Fields and attributes by their normalized names, without empty ones, and what is wrong with them."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.known: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self._others: dict[str, Any] = {}
        for written, value in given.items():
            name = field_called(written)
            if name in OWN_COLUMNS or value is None or (isinstance(value, str) and not value.strip()):
                continue
            place = self.known if name in PLAIN_FIELDS else self._others
            if not name:
                self._report(written, value, "this column has no name; give it one")
            elif name in place:
                self._report(written, value, f"{name} is given twice; give it once")
            else:
                place[name] = value

    def read(self, field: str, check: Callable[[Any], T]) -> T | None:
        return self._check(field, self.known[field], check) if field in self.known else None

    def read_each(self, field: str, check: Callable[[Any], T], *, most: int) -> Sequence[T]:
        """The valid members of a list, or of a text that lists them, without duplicates."""
        members = self.known.get(field, ())
        if isinstance(members, str):
            members = [part.strip() for part in _SEPARATORS[field].split(members) if part.strip()]
        if not isinstance(members, list | tuple):
            self._report(field, members, "write a list, or one text with its members separated by ;")
        elif len(members) > most:
            self._report(field, f"{len(members)} of them", f"at most {most} are taken")
        else:
            found = [self._check(field, member, check) for member in members]
            return list(dict.fromkeys(each for each in found if each is not None))
        return ()

    def read_attributes(self) -> Mapping[str, str]:
        """Those of the field `attributes`, and the fields that have no name of their own."""
        named = self._named_attributes()
        for name in sorted(named.keys() & self._others.keys()):
            self._report(name, self._others[name], "it is among the attributes already; give it once")
        found = {**named, **self._others}
        if len(found) > MOST_ATTRIBUTES:
            self._report("attributes", f"{len(found)} of them", f"at most {MOST_ATTRIBUTES} are taken")
            return {}
        for name in found:
            if len(name) > LONGEST_NAME or _UNSEEN.search(name):
                problem = f"an attribute's name has at most {LONGEST_NAME} plain characters"
                self._report(name[:LONGEST_NAME], "", problem)
        return attributes_of(
            {name: self._check(name, value, lambda each: _text(each, LONGEST_VALUE)) for name, value in found.items()}
        )

    def _named_attributes(self) -> dict[str, Any]:
        """An object with a value for each name; in a CSV cell, its JSON."""
        read = given = self.known.get("attributes", {})
        if isinstance(given, str):
            try:
                read = msgspec.json.decode(given)
            except (msgspec.DecodeError, UnicodeError):
                read = None
        if not isinstance(read, Mapping):
            example = '{"color": "red"}'
            self._report("attributes", given, f"write an object such as {example}, or give each its own column")
            return {}
        named: dict[str, Any] = {}
        for written, value in read.items():
            name = name_of(str(written))
            if not name or name in named:
                self._report(f"attributes.{written}", value, "give each attribute one name, and each name once")
            elif value is not None and value != "":
                named[name] = value
        return named

    def _check(self, field: str, value: Any, check: Callable[[Any], T]) -> T | None:
        try:
            return check(value)
        except ValueError as wrong:
            self._report(field, value, str(wrong))
            return None

    def _report(self, field: str, value: object, why: str) -> None:
        """The value is shown without the password of a URL."""
        if isinstance(value, str):
            shown = _PASSWORD.sub("//…@", value.encode("utf-8", "replace").decode())
        else:
            try:
                shown = msgspec.json.encode(value).decode()
            except (TypeError, ValueError, msgspec.EncodeError):
                shown = repr(value)
        self.problems.append((field, shown, why))


def _text(given: object, longest: int) -> str:
    # A bool is an int to Python, but `true` is no title and no count of hours.
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ValueError("write a text or a number")  # noqa: TRY004 (a wrong value, as people write them)
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    shown = " ".join(str(given).split())
    if not shown:
        raise ValueError("it is empty; leave it out, or write something")
    if len(shown) > longest:
        raise ValueError(f"it has {len(shown):,} characters; {longest:,} are the most")
    if _UNSEEN.search(shown):
        raise ValueError("it has a character that cannot be shown or stored; remove it, and save files as UTF-8")
    return shown


def _title(given: object) -> str:
    title = _text(given, LONGEST_TITLE)
    if not any(sign.isalnum() for sign in title):
        raise ValueError("it has no letter and no digit, so no listing can match; write the words that listings have")
    return title


def _excluded(given: object) -> str:
    word = _text(given, LONGEST_EXCLUDED).lower()
    if ";" in word:
        raise ValueError("a semicolon separates words; write two words, or leave it out")
    return word


def _url(given: object) -> str:
    url = _text(given, LONGEST_URL)
    if not re.match(r"https?://", url, re.IGNORECASE):
        raise ValueError("write the whole URL, with https:// or http:// before it")
    name = link_rules.canonical_link(url)
    if isinstance(name, link_rules.RefusedUrl):
        raise ValueError(f"it cannot be crawled: {name.reason}")  # noqa: TRY004 (a wrong value, not a wrong type)
    if name.kind in NOT_CRAWLED:
        raise ValueError(f"it is {NOT_CRAWLED[name.kind]}; give the URL of the thing itself")
    return url


def _currency(given: object) -> str:
    code = _text(given, 20).upper()
    if code not in CODES:
        mixed_up = [each for each in CODES if sorted(each) == sorted(code)]
        guess = did_you_mean(code, mixed_up or CODES)
        raise ValueError(f"it is not an ISO currency code.{guess} Write one such as USD, EUR or TWD")
    return code


def _hours(given: object) -> float:
    try:
        hours = float(_text(given, 40))
    except ValueError:
        hours = math.nan
    if not LEAST_HOURS <= hours <= MOST_HOURS:
        raise ValueError(f"write hours as a number from {LEAST_HOURS:g} (six minutes) to {MOST_HOURS:g} (a year)")
    return hours
