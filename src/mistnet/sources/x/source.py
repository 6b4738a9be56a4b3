"""X as a source: its keys, limits, prices and client, and what each key has left."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from mistnet.governor.bills import Bills
from mistnet.governor.errors import NoKey, SourceRefused
from mistnet.governor.grants import Ticket
from mistnet.governor.model import X_SOURCE, CallPurpose, CallRecord, KeyLabel
from mistnet.governor.source import Source, SourceContext
from mistnet.queue.errors import WorkError
from mistnet.settings import Settings
from mistnet.social.model import X
from mistnet.sources.x import client as prices
from mistnet.sources.x.client import XClient

USUAL_DAY_CREDITS = 200_000
NO_CAP = (
    f"X has no cap on spending. Set one, for example US$ {USUAL_DAY_CREDITS // prices.CREDITS_PER_DOLLAR} a day: "
    f"`mistnet sources set x --day-credits {USUAL_DAY_CREDITS}`."
)
_ERROR_CHARACTERS = 500


def x_source(context: SourceContext) -> Source:
    settings = context.settings
    governor = context.governor(
        X_SOURCE,
        keys_of(settings),
        rate_per_minute=settings.x_rate_per_minute,
        burst=settings.x_burst,
        day_credits=settings.x_day_credits,
        month_credits=settings.x_month_credits,
        failure_credits=prices.failure,
    )
    http = context.http(X_SOURCE, settings.x_base_url, total_seconds=settings.x_timeout_seconds)
    return Source(
        governor=governor,
        platform=X,
        client=XClient(http, gate=governor, clock=context.database.clock),
        parts=[http.opened],
        setup="set MISTNET_X_API_KEY",
        costs=prices.COSTS,
        check_balances=lambda: check_balances(context),
    )


def keys_of(settings: Settings) -> Mapping[KeyLabel, str]:
    """Keys by a label that names them without giving them away."""
    keys = [key.get_secret_value() for key in settings.x_api_key]
    return {KeyLabel(f"key-{hashlib.sha256(key.encode()).hexdigest()[:8]}"): key for key in keys}


async def check_balances(context: SourceContext) -> Mapping[KeyLabel, str]:
    """Ask X with each key what it has left and store the answers; return what went wrong, by key."""
    keys = keys_of(context.settings)
    if not keys:
        raise NoKey
    clock, problems = context.database.clock, dict[KeyLabel, str]()
    http = context.http(X_SOURCE, context.settings.x_base_url)
    async with http.opened():
        for label, secret in keys.items():
            client = XClient(http, gate=_UngovernedKey(label, secret, context), clock=clock)
            try:
                balance = await client.balance()
            except SourceRefused as refused:
                problems[label] = refused.problem
            except WorkError as error:
                problems[label] = str(error)
            else:
                await Bills(context.database).note_balance(X_SOURCE, label, balance)
    return problems


class _UngovernedKey:
    """Lets a free call through with one key, paused or not: this is how an operator learns whether it works again."""

    def __init__(self, label: KeyLabel, secret: str, context: SourceContext) -> None:
        self._label, self._secret, self._store = label, secret, context.store
        self._clock = context.database.clock

    @asynccontextmanager
    async def call(self, endpoint: str, *, most: int, purpose: CallPurpose) -> AsyncIterator[Ticket]:
        ticket, at, error = Ticket(key=self._secret, label=self._label, reserved=most), self._clock.now(), None
        try:
            yield ticket
        except WorkError as failed:
            error = failed
            raise
        finally:
            record = CallRecord(
                source=X_SOURCE,
                key_label=self._label,
                endpoint=endpoint,
                at=at,
                seconds=(self._clock.now() - at).total_seconds(),
                status=getattr(error, "status", None) if error else 200,
                items=ticket.items,
                credits=ticket.cost or 0,
                job_id=purpose.job_id,
                account_id=purpose.account_id,
                error=f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS] if error else None,
            )
            await self._store.record([record])
