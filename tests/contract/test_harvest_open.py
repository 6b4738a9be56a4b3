"""A worker and the requests beside it share one way to the source; the last one closes it."""

import asyncio

import pytest

from mistnet.app import App
from mistnet.governor.errors import SourceDown
from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.kit.transport import LateTransport
from tests.harvests import open_harvest

pytestmark = pytest.mark.common_sql

NOWHERE = "http://127.0.0.1:9"


def transport_of(app: App) -> LateTransport:
    transport = app.x._transport
    assert isinstance(transport, LateTransport)
    return transport


async def test_one_that_leaves_does_not_close_it_for_the_others(sqlite_url: str) -> None:
    async with open_harvest(sqlite_url, x_api_key=["a-key"], x_base_url=NOWHERE) as app:
        async with app.sources[X_SOURCE].opened():
            async with app.sources[X_SOURCE].opened():
                pass
            with pytest.raises(SourceDown):
                await app.x.user("ann", purpose=CallPurpose())
        with pytest.raises(RuntimeError, match="while the transport is open"):
            await app.x.user("ann", purpose=CallPurpose())


async def test_many_may_come_and_go_at_once_and_it_can_be_opened_again(sqlite_url: str) -> None:
    async with open_harvest(sqlite_url, x_api_key=["a-key"], x_base_url=NOWHERE) as app:

        async def visit(turns: int) -> None:
            async with app.sources[X_SOURCE].opened():
                for _ in range(turns):
                    await asyncio.sleep(0)
                assert transport_of(app)._open is not None

        for _ in range(2):
            await asyncio.gather(*(visit(turns) for turns in range(10)))
            assert transport_of(app)._open is None
