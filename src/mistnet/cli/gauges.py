"""Serves the metrics of a worker process to Prometheus."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Final

import typer
from loguru import logger
from prometheus_client import make_asgi_app

from mistnet.app import App
from mistnet.operations.health import HealthCheck, QueueGauges

LOOPBACK: Final = "127.0.0.1"


@asynccontextmanager
async def served(app: App, port: int | None, host: str = LOOPBACK) -> AsyncIterator[str | None]:
    """Serve the metrics while the block runs, by default for this machine only. Without a port do nothing."""
    if port is None:
        yield None
        return
    # The web server takes long to load, and workers without a port do not need it.
    from mistnet.cli.listening import (  # noqa: PLC0415
        bind,
        limits_of,
        serving_app,
        url_of,
    )

    try:
        listener = bind(host, port)
    except OSError as error:
        problem = f"port {port} cannot be used on {host}: {error.strerror}"
        raise typer.BadParameter(problem, param_hint="--metrics-port") from None
    url = url_of(listener)
    logger.info("metrics at {url}/metrics", url=url)
    meters = make_asgi_app(registry=app.metrics.registry)
    health = HealthCheck(app)
    refresher = asyncio.create_task(QueueGauges(app, health).run(), name="gauges")
    try:
        with closing(listener):
            async with serving_app(meters, listener, limits_of(app.settings), lifespan="off"):
                yield url
    finally:
        refresher.cancel()
        await health.close()
