"""The least a collection can cost: nobody can be cheaper, a good collector is not much dearer."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from mistnet.sim.endpoints import PAGE
from mistnet.sim.ledger import MINIMUM, POST, PROFILE
from mistnet.sim.truth import Truth

LOOKS_AT_THE_END = 2
FULL_BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    calls: int = 0
    credits: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(calls=self.calls + other.calls, credits=self.credits + other.credits)


def sweep_cost(posts: int) -> Cost:
    """Full pages, then the end seen twice."""
    pages = ceil(posts / PAGE)
    return Cost(calls=pages + LOOKS_AT_THE_END, credits=POST * posts + LOOKS_AT_THE_END * MINIMUM)


def lookup_cost(found: int, batch: int = PAGE) -> Cost:
    """Posts by id in batches. Ids that are gone ride along for nothing."""
    return Cost(calls=ceil(found / batch), credits=POST * found)


def profiles_cost(users: int) -> Cost:
    """Full batches at one credit each; a rest is filled up where that is cheaper."""
    batches, rest = divmod(users, FULL_BATCH)
    left = min(max(MINIMUM, PROFILE * rest), FULL_BATCH) if rest else 0
    return Cost(calls=batches + bool(rest), credits=batches * FULL_BATCH + left)


def least_credits(
    truth: Truth, handles: Iterable[str], at: datetime, *, retweets: bool = False, threads: bool = True, users: int = 0
) -> Cost:
    """A backfill of these accounts: their sweeps, the ancestors of their replies, and `users` profiles by id."""
    accounts = list(handles)
    total = profiles_cost(users)
    for handle in accounts:
        total += sweep_cost(len(truth.search_ids(handle, at)))
        if retweets:
            total += sweep_cost(len(truth.retweet_ids(handle, at)))
    if threads:
        total += lookup_cost(len(truth.missing_ancestors(accounts, at)))
    return total
