"""Faults on demand: the failures of an unreliable upstream, a function of the seed, the request and its repetition."""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Generic, TypeVar

from mistnet.sim.clock import Draw, mix, number_of, unit
from mistnet.sim.endpoints import MINIMUM, Records, SimListing
from mistnet.sim.users import dump


class SimFault(StrEnum):
    RATE_LIMITED = "rate_limited"
    RATE_LIMITED_WITH_WAIT = "rate_limited_with_wait"
    SERVER_ERROR = "server_error"
    SERVER_ERROR_PAGE = "server_error_page"
    KEY_REFUSED = "key_refused"
    TIMEOUT = "timeout"
    CUT_BODY = "cut_body"
    BROKEN_JSON = "broken_json"
    EMPTY_CLAIMS_MORE = "empty_claims_more"
    EMPTY_CLAIMS_END = "empty_claims_end"
    DUPLICATE_POSTS = "duplicate_posts"
    REPEATED_PAGE = "repeated_page"
    STUCK_CEILING = "stuck_ceiling"
    LOOPING_CURSOR = "looping_cursor"
    MISSING_RECORDS = "missing_records"
    NULL_DATA = "null_data"
    MALFORMED_POST = "malformed_post"
    LIST_CUT_SHORT = "list_cut_short"
    LIST_CUT_OPEN = "list_cut_open"
    LIST_HIDES_SOME = "list_hides_some"
    CONNECTION_REFUSED = "connection_refused"
    EMPTY_AT_FIRST = "empty_at_first"


# Sent in place of an answer, before the world is read.
REFUSALS = frozenset(
    {
        SimFault.RATE_LIMITED,
        SimFault.RATE_LIMITED_WITH_WAIT,
        SimFault.SERVER_ERROR,
        SimFault.SERVER_ERROR_PAGE,
        SimFault.KEY_REFUSED,
        SimFault.CONNECTION_REFUSED,
    }
)
BODY_FAULTS = frozenset({SimFault.TIMEOUT, SimFault.CUT_BODY, SimFault.BROKEN_JSON})
# After one of these the caller has not received a correct page.
UNBELIEVABLE = (
    REFUSALS
    | BODY_FAULTS
    | {
        SimFault.EMPTY_CLAIMS_MORE,
        SimFault.REPEATED_PAGE,
        SimFault.STUCK_CEILING,
        SimFault.MISSING_RECORDS,
        SimFault.NULL_DATA,
    }
)

_FROM = re.compile(r"\bfrom(?::|%3[Aa])(\w+?)(?:\+|%20|&|$)")
EMPTY_LOOKS = 4
"""How often searches for an author who is `empty_at_first` find nothing: two sweeps of a history, two requests each."""

LIST_FAULTS = frozenset({SimFault.LIST_CUT_SHORT, SimFault.LIST_CUT_OPEN, SimFault.LIST_HIDES_SOME})
MOST_IN_A_ROW = 2
MOST_CUT = 0.3
"""The largest part of a follow list that is cut: its end, or a part of a page."""

NO_FAULTS: Mapping[SimFault, float] = {}
ALL_FAULTS: Mapping[SimFault, float] = {
    **dict.fromkeys(SimFault, 0.015),
    SimFault.TIMEOUT: 0.005,
    SimFault.KEY_REFUSED: 0.005,
    SimFault.CONNECTION_REFUSED: 0.005,
    SimFault.EMPTY_CLAIMS_END: 0.03,
    SimFault.EMPTY_AT_FIRST: 0.0,  # an immediate retry does not help, only a later one
}
PRESETS: Mapping[str, Mapping[SimFault, float]] = {"none": NO_FAULTS, "all": ALL_FAULTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    fault: SimFault | None = None
    luck: int = 0
    latency_seconds: float = 0.0


class Faults:
    """Independent of the order of different requests: each has its own count and random numbers."""

    def __init__(
        self,
        seed: int = 0,
        rates: Mapping[SimFault, float] = NO_FAULTS,
        *,
        latency_seconds: tuple[float, float] = (0.0, 0.0),
        false_ends: Collection[str] = (),
    ) -> None:
        self.seed = seed
        # In the order of the enum, whatever the order given: the first fault that strikes wins.
        self.rates = {fault: rates[fault] for fault in SimFault if rates.get(fault, 0) > 0}
        self.latency_seconds = latency_seconds
        self._asked: Counter[str] = Counter()
        self._searched: Counter[str] = Counter()
        self._wrongly_empty = set(false_ends)

    @property
    def false_ends(self) -> Collection[str]:
        """Requests whose last answer was a false end. Faults that replace these must know them."""
        return frozenset(self._wrongly_empty)

    @property
    def quiet(self) -> bool:
        return not self.rates and self.latency_seconds[1] <= 0

    def decide(self, question: str) -> Decision:
        """The fault of the next answer to this request."""
        if self.quiet:
            return Decision()
        found = _FROM.search(question)
        author = found[1].lower() if found else ""  # the author that a search is restricted to
        self._asked[question] += 1
        self._searched[author] += 1
        asked, number = self._asked[question], number_of(question)
        low, high = self.latency_seconds
        struck: SimFault | None = None
        for fault, rate in self.rates.items():
            drawn, possible = [number, asked], True
            if fault is SimFault.EMPTY_CLAIMS_END:
                possible = question not in self._wrongly_empty
            if fault is SimFault.EMPTY_AT_FIRST:  # drawn for the author, not for the request
                drawn, possible = [number_of(author)], author != "" and self._searched[author] <= EMPTY_LOOKS
            if possible and unit(self.seed, Draw.FAULT, number_of(fault), *drawn) < rate:
                struck = fault
                break
        times = 0 if struck is SimFault.LIST_HIDES_SOME else asked  # the same users at every request
        return Decision(
            fault=struck,
            luck=mix(self.seed, Draw.VARIANT, number, times),
            latency_seconds=low + (high - low) * unit(self.seed, Draw.LATENCY, number, asked),
        )

    def answered(self, question: str, fault: SimFault | None) -> None:
        """A false end never comes twice in a row, so one retry is always enough."""
        if fault is SimFault.EMPTY_CLAIMS_END:
            self._wrongly_empty.add(question)
        elif fault not in UNBELIEVABLE:
            self._wrongly_empty.discard(question)

    def forget(self) -> None:
        self._asked.clear()
        self._searched.clear()
        self._wrongly_empty.clear()


Name = TypeVar("Name")


class Mishaps(Generic[Name]):
    """Faults of a shop or a market. At most two in a row strike one request: a retry must succeed in the end."""

    def __init__(self, rates: Mapping[Name, float] | None) -> None:
        self._rates = dict(rates or {})
        self._in_a_row: Counter[str] = Counter()

    def strike(self, question: str, luck: float, impossible: Collection[Name] = ()) -> Name | None:
        if self._in_a_row[question] < MOST_IN_A_ROW:
            for fault, rate in self._rates.items():
                luck -= rate
                if luck < 0 and fault not in impossible:
                    self._in_a_row[question] += 1
                    return fault
        self._in_a_row[question] = 0
        return None


def spoil(page: SimListing, fault: SimFault, luck: int) -> bool:
    """Apply a fault to a page; False if it does not apply to this page."""
    match fault:
        case SimFault.EMPTY_CLAIMS_MORE if page.shape.paged and page.shape.holds_posts:
            page.records, page.more, page.cursor = [], True, page.cursor or page.here
        case SimFault.EMPTY_CLAIMS_END | SimFault.EMPTY_AT_FIRST if page.shows_posts:
            page.records, page.more, page.cursor = [], False, ""
        case SimFault.DUPLICATE_POSTS if page.records:
            page.price = page.credits_due  # duplicates are not billed
            place = luck % len(page.records)
            page.records = [*page.records[: place + 1], page.records[place], *page.records[place + 1 :]]
        case SimFault.REPEATED_PAGE | SimFault.STUCK_CEILING if page.above:
            before = list(islice(page.above, 20 if fault is SimFault.REPEATED_PAGE else 1 + luck % 3))[::-1]
            page.records, page.more, page.cursor = before or page.records, bool(before) or page.more, page.here
            return bool(before)
        case SimFault.LOOPING_CURSOR if page.more:
            page.cursor = page.here
        case SimFault.MISSING_RECORDS:
            page.written, page.price = Records.MISSING, MINIMUM
        case SimFault.NULL_DATA:
            page.written, page.price = Records.NULL, MINIMUM
        case SimFault.MALFORMED_POST if page.shape.holds_posts and page.records:
            place = luck % len(page.records)
            post = json.loads(page.records[place])
            page.spoiled.append(str(post["id"]))
            post = malformed(post, luck, {"author": "someone"}, {"createdAt": 20261001})
            page.records = [*page.records[:place], dump(post).encode(), *page.records[place + 1 :]]
        case SimFault.LIST_CUT_SHORT | SimFault.LIST_CUT_OPEN | SimFault.LIST_HIDES_SOME if page.whole:
            return _cut_list(page, luck, at_end=fault is SimFault.LIST_CUT_SHORT)
        case _:
            return False
    return True


def _cut_list(page: SimListing, luck: int, *, at_end: bool) -> bool:
    """End a follow list early, or leave out several users in a row without a sign of it."""
    records = page.records
    room = int(page.whole * MOST_CUT) - page.after if at_end else int(len(records) * MOST_CUT)
    if room <= 0 or not records:
        return False
    gone = 1 + luck % room
    if at_end:
        page.records, page.more, page.cursor = records[: max(len(records) - gone, 0)], False, ""
    else:
        place = (luck >> 16) % (len(records) - gone + 1)
        page.records = [*records[:place], *records[place + gone :]]
    return True


def malformed(post: Mapping[str, Any], luck: int, *defects: Mapping[str, Any]) -> dict[str, Any]:
    """The post without its id, or with a value of a wrong type: one that all platforms have, or one of `defects`."""
    which = (luck >> 8) % 5
    if which == 0:
        return {name: value for name, value in post.items() if name != "id"}
    return {**post, **({"id": None}, *defects, {"text": {"unexpected": True}})[which - 1]}
