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
from mistnet.prices.errors import BadItem
from mistnet.prices.model import KNOWN_ATTRIBUTES, ItemRequest, attributes_of
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

_SPELLINGS: Final = {"source": "sources", "url": "urls", "excluded": "exclude", "every": "every_hours"}
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_PASSWORD: Final = re.compile(r"//[^/\s@]*@")
_PARTED: Final = {
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
    problems: list[Problem] = []
    known, others = _sorted_out(given, problems)
    title = _checked("title", known, _title, problems)
    request = ItemRequest(
        title=title or "",
        ref=_checked("ref", known, _ref, problems),
        attributes=_attributes(known.get("attributes"), others, problems),
        exclude=tuple(sorted(_each("exclude", known, _excluded, problems, most=MOST_EXCLUDED))),
        sources=tuple(sorted(_each("sources", known, _source_among(sources), problems, most=max(len(sources), 1)))),
        urls=_urls(known, problems),
        currency=_checked("currency", known, _currency, problems),
        every_hours=_checked("every_hours", known, _hours, problems),
    )
    if "title" not in known:
        problems.insert(0, ("title", "", "an item needs a title: the words that listings of it have"))
    if problems:
        raise BadItem(problems)
    return request


def fields_of(request: ItemRequest) -> dict[str, Any]:
    """The fields of a request, as `item_request_of` takes them."""
    return {name: getattr(request, name) for name in PLAIN_FIELDS}


def problem_text(problem: Problem) -> str:
    field, value, why = problem
    return f"{field} {value[:200]!r}: {why}" if value else f"{field}: {why}"


def _sorted_out(given: Mapping[str, Any], problems: list[Problem]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and attributes by their normalized names, without empty ones."""
    known: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for written, value in given.items():
        name = field_called(written)
        if name in OWN_COLUMNS or value is None or (isinstance(value, str) and not value.strip()):
            continue
        place = known if name in PLAIN_FIELDS else others
        if not name:
            problems.append((written, _shown(value), "this column has no name; give it one"))
        elif name in place:
            problems.append((written, _shown(value), f"{name} is given twice; give it once"))
        else:
            place[name] = value
    return known, others


def _checked(field: str, known: Mapping[str, Any], check: Callable[[Any], T], problems: list[Problem]) -> T | None:
    if field not in known:
        return None
    try:
        return check(known[field])
    except ValueError as wrong:
        problems.append((field, _shown(known[field]), str(wrong)))
        return None


def _each(
    field: str, known: Mapping[str, Any], check: Callable[[Any], T], problems: list[Problem], *, most: int
) -> Sequence[T]:
    """The validated members of a list, or of a text that lists them, without duplicates."""
    members = _members(field, known.get(field, ()), problems)
    if len(members) > most:
        problems.append((field, f"{len(members)} of them", f"at most {most} are taken"))
        return ()
    found = [_checked(field, {field: member}, check, problems) for member in members]
    return list(dict.fromkeys(each for each in found if each is not None))


def _members(field: str, given: object, problems: list[Problem]) -> Sequence[Any]:
    if isinstance(given, str):
        return [part.strip() for part in _PARTED[field].split(given) if part.strip()]
    if isinstance(given, list | tuple):
        return given
    problems.append((field, _shown(given), "write a list, or one text with its members parted by ;"))
    return ()


def _text(given: object, longest: int) -> str:
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


def _ref(given: object) -> str:
    return _text(given, LONGEST_REF)


def _excluded(given: object) -> str:
    word = _text(given, LONGEST_EXCLUDED).lower()
    if ";" in word:
        raise ValueError("a semicolon separates words; write two words, or leave it out")
    return word


def _attributes(given: object, others: Mapping[str, Any], problems: list[Problem]) -> Mapping[str, str]:
    named = _named(given, problems)
    twice = sorted(named.keys() & others.keys())
    problems += [(name, _shown(others[name]), "it is among the attributes already; give it once") for name in twice]
    found = {**named, **others}
    if len(found) > MOST_ATTRIBUTES:
        problems.append(("attributes", f"{len(found)} of them", f"at most {MOST_ATTRIBUTES} are taken"))
        return {}
    for name in found:
        if len(name) > LONGEST_NAME or _UNSEEN.search(name):
            problems.append(
                (name[:LONGEST_NAME], "", f"an attribute's name has at most {LONGEST_NAME} plain characters")
            )
    checked = {name: _checked(name, found, lambda value: _text(value, LONGEST_VALUE), problems) for name in found}
    return attributes_of(checked)


def _named(given: object, problems: list[Problem]) -> dict[str, Any]:
    """An object with a value for each name; in a CSV cell, its JSON."""
    read = given
    if isinstance(given, str):
        try:
            read = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeError):
            read = None
    if given is None:
        return {}
    if not isinstance(read, Mapping):
        example = '{"color": "red"}'
        problems.append(
            ("attributes", _shown(given), f"write an object such as {example}, or give each its own column")
        )
        return {}
    named: dict[str, Any] = {}
    for written, value in read.items():
        name = name_of(str(written))
        if not name or name in named:
            problems.append(
                (f"attributes.{written}", _shown(value), "give each attribute one name, and each name once")
            )
        elif value is not None and value != "":
            named[name] = value
    return named


def _source_among(known: Collection[str]) -> Callable[[object], SourceName]:
    def check(given: object) -> SourceName:
        name = _text(given, LONGEST_NAME)
        if name not in known:
            listed = ", ".join(sorted(known)) or "none are set up here"
            raise ValueError(
                f"there is no such source.{did_you_mean(name.lower(), known)} Sources that serve items: {listed}"
            )
        return SourceName(name)

    return check


def _urls(known: Mapping[str, Any], problems: list[Problem]) -> tuple[str, ...]:
    """Each page once, even if its URL is written in several ways."""
    found = _each("urls", known, _url, problems, most=MOST_URLS)
    names = {
        name.url_norm: url
        for url in reversed(found)
        if not isinstance(name := link_rules.canonical_link(url), link_rules.RefusedUrl)
    }
    return tuple(url for url in found if url in set(names.values()))


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


def _shown(value: object) -> str:
    """A value for a message, without the password of a URL."""
    if isinstance(value, str):
        return _PASSWORD.sub("//…@", value.encode("utf-8", "replace").decode())
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.EncodeError):
        return repr(value)


KNOWN_COLUMNS: Final = (*PLAIN_FIELDS, *KNOWN_ATTRIBUTES)
