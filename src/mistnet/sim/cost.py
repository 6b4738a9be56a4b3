"""The least a collection can cost: nobody can be cheaper, a good collector is not much dearer."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from mistnet.sim.endpoints import PAGE
from mistnet.sim.ledger import MINIMUM, POST, PROFILE
from mistnet.sim.truth import ROOT, Truth

FULL_BATCH = 100
SEARCH = "/twitter/tweet/advanced_search"
LOOKUP = "/twitter/tweets"
ONE_PROFILE = "/twitter/user/info"
PROFILES = "/twitter/user/batch_info_by_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    calls: int = 0
    credits: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(calls=self.calls + other.calls, credits=self.credits + other.credits)


def sweep_cost(posts: int) -> Cost:
    """Full pages, the last of which tells of the end, and a look that confirms it. Of nothing at all: two looks."""
    pages = ceil(posts / PAGE)
    looks = 1 if pages else 2
    return Cost(calls=pages + looks, credits=POST * posts + looks * MINIMUM)


def lookup_cost(found: int, gone: int = 0, batch: int = PAGE) -> Cost:
    """Posts by id in batches. Ids that are gone ride along for nothing, but somebody must ask for them."""
    calls = ceil((found + gone) / batch)
    return Cost(calls=calls, credits=max(POST * found, MINIMUM * calls))


def profiles_cost(found: int, unknown: int = 0) -> Cost:
    """Batches of a hundred at one credit per user found, where those nobody knows help to make up the hundred.

    A rest is left small, with as many of the unknown in it as there are, or filled up where that is cheaper.
    """
    batches, rest = divmod(found + unknown, FULL_BATCH)
    full = Cost(calls=batches, credits=max(found, MINIMUM * batches))
    if not rest:
        return full
    dear = max(rest - unknown, 0)
    small = max(MINIMUM, PROFILE * dear) + max(found - dear, MINIMUM * batches)
    filled = max(found + FULL_BATCH - rest, MINIMUM * (batches + 1))
    return Cost(calls=batches + 1, credits=min(small, filled))


def least_credits(
    truth: Truth, handles: Iterable[str], at: datetime, *, retweets: bool = False, threads: bool = True
) -> Cost:
    """A backfill of these accounts, from their names to the last stranger they speak to."""
    return sum(least_by_endpoint(truth, handles, at, retweets=retweets, threads=threads).values(), Cost())


def least_by_endpoint(
    truth: Truth, handles: Iterable[str], at: datetime, *, retweets: bool = False, threads: bool = True
) -> dict[str, Cost]:
    """The profile behind each handle, the sweeps, the ancestors of replies, and the users who are only spoken to."""
    accounts = list(handles)
    passes = [truth.search_ids(handle, at) for handle in accounts]
    passes += [truth.retweet_ids(handle, at) for handle in accounts if retweets]
    swept = {post_id for found in passes for post_id in found}
    least = {
        ONE_PROFILE: Cost(calls=len(accounts), credits=PROFILE * len(accounts)),
        SEARCH: sum((sweep_cost(len(found)) for found in passes), Cost()),
    }
    if not threads:
        return least
    ancestors, ends = _above(truth, swept, at)
    shown = swept | truth.originals(swept, at)
    gone = {end for end, _ in ends}
    spoken_to = truth.addressed(swept) | {user_id for _, user_id in ends}
    strangers = spoken_to - truth.authors(shown | ancestors | truth.originals(ancestors, at))
    known = len(truth.hydratable(strangers, at) | truth.unavailable(strangers, at))
    least[LOOKUP] = lookup_cost(len(ancestors - shown), len(gone))
    least[PROFILES] = profiles_cost(known, len(strangers) - known)
    return least


def _above(truth: Truth, posts: Iterable[int], at: datetime) -> tuple[set[int], set[tuple[int, int]]]:
    """All ancestors that can be had, and the posts that cannot, each with its author."""
    ancestors: set[int] = set()
    ends: set[tuple[int, int]] = set()
    for post_id in posts:
        chain = truth.chain(post_id, at)
        ancestors |= set(chain.ancestors)
        parent = truth.parent_of(chain.ancestors[-1] if chain.ancestors else post_id)
        if chain.end != ROOT and parent:
            ends.add((chain.end_id, parent.user_id))
    return ancestors, ends
