"""Dependencies of routes: the app and the objects of the service. Async, because FastAPI runs others in threads."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from mistnet.app import App
from mistnet.operations.gauges import QueueGauges
from mistnet.operations.health import HealthCheck


async def _app(request: Request) -> App:
    app: App = request.app.state.mistnet
    return app


async def _gauges(request: Request) -> QueueGauges:
    gauges: QueueGauges = request.app.state.gauges
    return gauges


async def _health(request: Request) -> HealthCheck:
    health: HealthCheck = request.app.state.health
    return health


Mistnet = Annotated[App, Depends(_app)]
Gauges = Annotated[QueueGauges, Depends(_gauges)]
Checks = Annotated[HealthCheck, Depends(_health)]
