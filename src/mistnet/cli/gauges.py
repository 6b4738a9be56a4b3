"""Serves a process's meters to Prometheus."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import typer
from loguru import logger
from prometheus_client import start_http_server

from mistnet.app import App
from mistnet.desk.gauges import QueueGauges
from mistnet.desk.health import HealthCheck

LOOPBACK: Final = "127.0.0.1"


@asynccontextmanager
async def served(app: App, port: int | None, host: str = LOOPBACK) -> AsyncIterator[None]:
    """Serves the meters while the block runs, for this machine alone unless told; without a port nothing happens."""
    if port is None:
        yield
        return
    try:
        server, thread = start_http_server(port, addr=host, registry=app.metrics.registry)
    except OSError as error:
        problem = f"port {port} cannot be used on {host}: {error.strerror}"
        raise typer.BadParameter(problem, param_hint="--metrics-port") from None
    logger.info("metrics at http://{host}:{port}/metrics", host=host, port=port)
    health = HealthCheck(app)
    refresher = asyncio.create_task(QueueGauges(app, health).run(), name="gauges")
    try:
        yield
    finally:
        refresher.cancel()
        await health.close()
        server.shutdown()
        server.server_close()
        thread.join()
