"""The search language, as far as a collector speaks it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from mistnet.sim.numbers import first_id_at

TERM = re.compile(r'-?"[^"]*"|\S+')
WITHIN = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Retweets(StrEnum):
    """Native retweets are left out unless asked for."""

    LEFT_OUT = "left out"
    ONLY = "only"
    TOO = "too"


@dataclass(slots=True, kw_only=True)
class Query:
    authors: list[str] = field(default_factory=list)
    to: str | None = None
    conversation: int | None = None
    words: list[str] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)
    ceiling: int | None = None  # inclusive
    floor: int = 0  # exclusive
    retweets: Retweets = Retweets.LEFT_OUT
    replies: bool | None = None  # None: both
    media: bool | None = None
    links: bool | None = None
    quotes: bool | None = None
    language: str | None = None
    least_likes: int = 0

    @property
    def reads_text(self) -> bool:
        wanted = (self.media, self.links, self.language)
        return bool(self.words or self.unwanted or self.least_likes) or any(each is not None for each in wanted)

    def lower(self, ceiling: int) -> None:
        self.ceiling = ceiling if self.ceiling is None else min(self.ceiling, ceiling)

    def lift(self, floor: int) -> None:
        self.floor = max(self.floor, floor)


def parse(text: str, now_ms: int) -> Query:
    query = Query()
    for term in TERM.findall(text.replace("(", " ").replace(")", " ")):
        _read(query, term, now_ms)
    return query


def _read(query: Query, term: str, now_ms: int) -> None:
    """One term. What is not understood is a word to look for."""
    wanted = not term.startswith("-")
    name, _, given = term.removeprefix("-").partition(":")
    name = name.lower()
    if name in {"filter", "include"} and given:
        _filter(query, given.lower(), wanted=wanted, only=name == "filter")
    elif name in BY_NUMBER and given.isdecimal():
        BY_NUMBER[name](query, int(given))
    elif name in BY_NAME and given:
        BY_NAME[name](query, given.removeprefix("@"))
    elif name == "within_time" and re.fullmatch(r"\d+[smhd]", given):
        query.lift(first_id_at(now_ms - int(given[:-1]) * WITHIN[given[-1]] * 1000) - 1)
    elif term not in {"OR", "AND"}:
        (query.words if wanted else query.unwanted).append(term.removeprefix("-").strip('"').lower())


def _conversation(query: Query, root: int) -> None:
    query.conversation = root


def _least_likes(query: Query, likes: int) -> None:
    query.least_likes = likes


def _to(query: Query, handle: str) -> None:
    query.to = handle


def _language(query: Query, code: str) -> None:
    query.language = code


BY_NUMBER: dict[str, Callable[[Query, int], None]] = {
    "max_id": Query.lower,
    "since_id": Query.lift,
    "since_time": lambda query, seconds: query.lift(first_id_at(seconds * 1000) - 1),
    "until_time": lambda query, seconds: query.lower(first_id_at(seconds * 1000) - 1),
    "conversation_id": _conversation,
    "min_faves": _least_likes,
}
BY_NAME: dict[str, Callable[[Query, str], None]] = {
    "from": lambda query, handle: query.authors.append(handle),
    "to": _to,
    "lang": _language,
}


def _filter(query: Query, what: str, *, wanted: bool, only: bool) -> None:
    match what:
        case "nativeretweets" | "retweets" if wanted:
            query.retweets = Retweets.ONLY if only else Retweets.TOO
        case "replies" if only:
            query.replies = wanted
        case "media" if only:
            query.media = wanted
        case "links" if only:
            query.links = wanted
        case "quote" if only:
            query.quotes = wanted
        case _:  # anything else changes nothing, as upstream
            return
