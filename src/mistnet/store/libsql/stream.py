"""One transaction on a libSQL server: begun with its first statement, ended with the stream that carries it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from mistnet.store.libsql.errors import ServerGone, StreamLost, TransactionLost, refusal
from mistnet.store.libsql.protocol import (
    CLOSE,
    IN_TRANSACTION,
    Answer,
    Outcome,
    Request,
    Result,
    Step,
    Steps,
    after,
    batch,
    statement,
    step,
)
from mistnet.store.libsql.server import Server

# References are enforced by default; a server built otherwise is told. Inside a transaction it would be too late.
_OPENING: Final = ("PRAGMA foreign_keys = ON", "BEGIN IMMEDIATE")
_STEPS: Final = msgspec.json.Decoder(Steps)


class Stream:
    """A transaction from BEGIN to COMMIT or ROLLBACK. Every answer brings the baton for the next request."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._baton: str | None = None
        self._base_url: str | None = None
        self._begun = False
        self._sending: asyncio.Task[Answer] | None = None
        self._broken: sqlite3.Error | None = None

    async def run(
        self, steps: Sequence[Step], *, before: Sequence[Request] = (), also: Sequence[Request] = ()
    ) -> Steps:
        """One round trip: the steps one after the other, the first only if the transaction stands."""
        opening = [] if self._begun else [step(statement(sql)) for sql in _OPENING]
        skipped = len(opening)
        guarded = [*opening, *(_moved(each, skipped) for each in steps)]
        answer = await self._send([*before, batch(guarded), *also], opening=bool(opening))
        done = _steps(answer.results[len(before)], len(guarded))
        for error in done.step_errors[:skipped]:
            if error is not None:
                self._broken = refusal(error.message, error.code)
                raise self._broken
        self._begun = True
        return Steps(step_results=done.step_results[skipped:], step_errors=done.step_errors[skipped:])

    async def commit(self) -> str | int | None:
        """Returns the server's count of changes, where it keeps one."""
        if not self._begun and self._broken is None:
            return None
        answer = await self._send([batch([step(statement("COMMIT"), IN_TRANSACTION)]), CLOSE])
        done = _steps(answer.results[0], 1)
        results(done)
        return done.replication_index

    async def abandon(self) -> None:
        """Rolls back. If the server cannot be told, it does so by itself before long."""
        await self._settle()
        if self._baton is None:
            return
        with contextlib.suppress(sqlite3.Error):
            await self._send([batch([step(statement("ROLLBACK"), IN_TRANSACTION)]), CLOSE], mending=True)
        self._baton = None

    async def _send(self, requests: Sequence[Request], *, opening: bool = False, mending: bool = False) -> Answer:
        """A request goes on when its sender is cancelled: its baton is what the rollback needs."""
        if self._broken is not None and not mending:
            raise self._broken
        if self._baton is None and not opening:
            raise StreamLost("the server gave our stream up")
        self._sending = asyncio.create_task(self._exchange(requests))
        answer = await asyncio.shield(self._sending)
        self._sending = None
        return answer

    async def _exchange(self, requests: Sequence[Request]) -> Answer:
        baton, self._baton = self._baton, None
        try:
            answer = await self._server.send(requests, baton=baton, base_url=self._base_url)
            self._base_url = self._server.following(answer.base_url, self._base_url)
        except sqlite3.Error as error:
            self._broken = error
            raise
        except UnicodeError:  # found as the request was put together: nothing was sent, and the baton is still good
            self._baton = baton
            raise
        self._baton = answer.baton
        return answer

    async def _settle(self) -> None:
        """Waits for what a cancelled sender left under way."""
        sending, self._sending = self._sending, None
        if sending is not None:
            with contextlib.suppress(sqlite3.Error):
                await sending


def results(done: Steps) -> list[Result]:
    """All of them, or the first error. A step that was left out had no transaction to stand in."""
    found = []
    for result, error in zip(done.step_results, done.step_errors, strict=True):
        if error is not None:
            raise refusal(error.message, error.code)
        if result is None:
            raise TransactionLost
        found.append(result)
    return found


def outcome_of(outcome: Outcome) -> msgspec.Raw:
    if outcome.error is not None:
        raise refusal(outcome.error.message, outcome.error.code)
    if outcome.response is None or not outcome.response.result:
        raise ServerGone("the server's answer lacks its result")
    return outcome.response.result


def _steps(outcome: Outcome, asked: int) -> Steps:
    try:
        done = _STEPS.decode(outcome_of(outcome))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerGone(f"the server's answer cannot be read: {error}") from None
    if not len(done.step_results) == len(done.step_errors) == asked:
        raise ServerGone(f"the server's answer is not about the {asked} steps it was asked for")
    return done


def _moved(each: Step, by: int) -> Step:
    """A step that waits for another one names it by its place, which the opening shifts."""
    condition = each.get("condition")
    if not by or condition is None or condition["type"] != "ok":
        return each
    return {**each, "condition": after(condition["step"] + by)}
