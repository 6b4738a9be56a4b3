"""Asks what each key has left. The question is free, and the answers are kept for all to see."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from mistnet import __version__
from mistnet.app import App
from mistnet.domain.errors import NoKey, SourceRefused, WorkError
from mistnet.domain.ports import Clock
from mistnet.domain.sources import X_SOURCE, CallRecord, Errand, KeyLabel, SourceBook
from mistnet.engine.governor import Ticket
from mistnet.harvest import keys_of
from mistnet.upstream.transport import Transport
from mistnet.upstream.x.client import XClient

NOT_ANSWERED: Final = 1
"""Exit code when a key's balance could not be had."""


async def ask_balances(app: App) -> Mapping[KeyLabel, str]:
    """Ask X with every key that is configured here; tell what went wrong, by key."""
    if not app.settings.x_api_key:
        raise NoKey
    from mistnet.upstream.http import HttpTransport  # noqa: PLC0415 (slow to load; other commands do without)

    async with HttpTransport(app.settings.x_base_url, user_agent=f"mistnet/{__version__}") as transport:
        return await check_balances(app, transport)


async def check_balances(app: App, transport: Transport) -> Mapping[KeyLabel, str]:
    """Asks with each key by itself and keeps the answers; tells what went wrong, by key."""
    problems: dict[KeyLabel, str] = {}
    book, clock = app.harvest.book, app.database.clock
    for label, secret in keys_of(app.settings).items():
        client = XClient(transport, gate=_OneKey(label, secret, book, clock), clock=clock)
        try:
            balance = await client.balance()
        except SourceRefused as refused:
            problems[label] = refused.problem
        except WorkError as error:
            problems[label] = str(error)
        else:
            await book.note_balance(X_SOURCE, label, balance, now=clock.now())
    return problems


class _OneKey:
    """Lets a free question through with one key, paused or not: that is how one finds out whether it serves again."""

    def __init__(self, label: KeyLabel, secret: str, book: SourceBook, clock: Clock) -> None:
        self._label, self._secret, self._book, self._clock = label, secret, book, clock

    @asynccontextmanager
    async def call(self, endpoint: str, *, most: int, errand: Errand) -> AsyncIterator[Ticket]:
        ticket, at_, error = Ticket(key=self._secret, label=self._label, reserved=most), self._clock.now(), None
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
                at=at_,
                seconds=(self._clock.now() - at_).total_seconds(),
                status=getattr(error, "status", None) if error else 200,
                items=ticket.items,
                credits=ticket.cost or 0,
                job_id=errand.job_id,
                account_id=errand.account_id,
                error=f"{type(error).__name__}: {error}"[:500] if error else None,
            )
            await self._book.record([record])
