"""API keys: their credits and rate limits."""

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum

from mistnet.sim.clock import Draw, mix

MINIMUM = 15
POST = 15
PROFILE = 18
RELATION = 100
FREE_SPACING_MS = 5_000
PAID_PER_SECOND = 20
# Upstream shows spent credits late: what compares bills must wait for them.
LAG_MS = (20_000, 60_000)
FREE_REFUSAL = "For free-tier users, the QPS limit is one request every 5 seconds."
PAID_REFUSAL = "Too many requests, please slow down."


def posts_price(posts: int) -> int:
    return max(MINIMUM, POST * posts)


def profiles_price(asked: int, returned: int) -> int:
    """From 100 ids in one call a profile costs 1 instead of 18."""
    return max(MINIMUM, returned * (1 if asked >= 100 else PROFILE))


def follow_list_price(users: int) -> int:
    return max(MINIMUM, users * (1 if users >= 200 else 2 if users >= 100 else 3))


class Tier(StrEnum):
    FREE = "free"
    PAID = "paid"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key. Bonus credits are spent first."""

    name: str
    tier: Tier = Tier.PAID
    recharge_credits: int = 0
    bonus_credits: int = 0
    per_second: int = PAID_PER_SECOND


@dataclass(slots=True)
class SimKeyBalance:
    """The credits and calls of one key. The shown balance lags behind."""

    key: Key
    granted: int
    spent: int = 0
    charges: int = 0
    settled: int = 0
    unsettled: Counter[int] = field(default_factory=Counter)  # credits by the second in which they appear
    asked_ms: deque[int] = field(default_factory=deque)

    @property
    def left(self) -> int:
        return self.granted - self.spent


class SimLedger:
    def __init__(self, keys: list[Key]) -> None:
        self.balances = {key.name: SimKeyBalance(key, key.recharge_credits + key.bonus_credits) for key in keys}

    def admit(self, balance: SimKeyBalance, now_ms: int) -> bool:
        """Whether the rate limit allows a call now. If so, it is counted."""
        most, window_ms = balance.key.per_second, 1_000
        match balance.key.tier:
            case Tier.UNLIMITED:
                return True
            case Tier.FREE:
                most, window_ms = 1, FREE_SPACING_MS
            case Tier.PAID:
                pass
        while balance.asked_ms and balance.asked_ms[0] <= now_ms - window_ms:
            balance.asked_ms.popleft()
        if len(balance.asked_ms) >= most:
            return False
        balance.asked_ms.append(now_ms)
        return True

    def charge(self, balance: SimKeyBalance, credits_due: int, now_ms: int) -> None:
        if credits_due <= 0:
            return
        balance.charges += 1
        balance.spent += credits_due
        low, high = LAG_MS
        shows_ms = now_ms + low + mix(Draw.LAG, balance.charges) % (high - low)
        balance.unsettled[shows_ms // 1000] += credits_due
        # The balance may never be asked for, so that it is settled here too.
        if len(balance.unsettled) > 10_000:
            self._settle(balance, now_ms)

    def shown_balance(self, balance: SimKeyBalance, now_ms: int) -> tuple[int, int]:
        """Recharge and bonus credits as the balance endpoint shows them."""
        self._settle(balance, now_ms)
        shown = max(balance.granted - balance.settled, 0)
        bonus = min(max(balance.key.bonus_credits - balance.settled, 0), shown)
        return shown - bonus, bonus

    def grant(self, name: str, credits_left: int) -> None:
        """Set the credits that a key has left, effective at once."""
        balance = self.balances[name]
        balance.granted = credits_left + balance.spent
        balance.settled = balance.spent
        balance.unsettled.clear()

    def _settle(self, balance: SimKeyBalance, now_ms: int) -> None:
        for second in [second for second in balance.unsettled if second * 1000 <= now_ms]:
            balance.settled += balance.unsettled.pop(second)
