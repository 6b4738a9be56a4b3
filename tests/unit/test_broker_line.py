"""What the client of RabbitMQ raises, in our words."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest
from aiormq.exceptions import AMQPConnectionError, ProbableAuthenticationError

from mistnet.queue.errors import BrokerRefused, BrokerUnreachable
from mistnet.queue.rabbitmq.connection import BrokerAddress, BrokerConnector, forgiven

LINE = BrokerConnector(BrokerAddress(url="amqp://ann:secret@127.0.0.1:1/"))


def test_causes_that_form_a_ring_are_each_looked_at_once() -> None:
    error, cause = AMQPConnectionError("reset"), ConnectionResetError(104, "reset by peer")
    error.__cause__, cause.__context__ = cause, error
    assert isinstance(LINE.named(error), BrokerUnreachable)


def test_a_refusal_below_other_errors_is_one() -> None:
    error = ConnectionError("gone")
    error.__context__ = ProbableAuthenticationError("no")
    assert isinstance(LINE.named(error), BrokerRefused)


def test_no_password_is_in_what_is_said() -> None:
    said = LINE.named(ConnectionError("could not log in as ann with secret"))
    assert "secret" not in str(said)


@pytest.mark.parametrize("calling", [LINE.translated, forgiven])
async def test_a_cancellation_the_client_lost_is_heeded(calling: Callable[[], AbstractContextManager[None]]) -> None:
    """As Python 3.11's wait_for loses it if the answer comes at the same moment: a loop around it would never end."""

    async def ask_forever() -> None:
        with calling(), suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    asking = asyncio.create_task(ask_forever())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking], timeout=60)
    assert asking.cancelled()


@pytest.mark.parametrize("calling", [LINE.translated, forgiven])
async def test_a_cancellation_the_client_lost_to_an_error_is_heeded(
    calling: Callable[[], AbstractContextManager[None]],
) -> None:
    """A connection that is refused in the moment of the cancellation: its error is raised in place of it."""

    async def ask_forever() -> None:
        with calling():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionRefusedError from None

    asking = asyncio.create_task(ask_forever())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking], timeout=60)
    assert asking.cancelled()


async def test_the_bare_exception_of_a_lost_connection_is_an_error_of_the_broker() -> None:
    with pytest.raises(BrokerUnreachable), LINE.translated():
        raise Exception  # noqa: TRY002 (as aiormq ends what waits for a connection whose end has no reason)
    with forgiven():
        raise Exception  # noqa: TRY002


async def test_errors_of_ours_are_not_taken_for_the_brokers() -> None:
    with pytest.raises(KeyError), LINE.translated():
        raise KeyError("a mistake")
