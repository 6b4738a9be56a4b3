"""What routes are given: the app, and what belongs to the service alone. Async, or each would take a thread."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from mistnet.app import App
from mistnet.operations.gauges import QueueGauges
from mistnet.operations.health import HealthCheck


async def the_app(request: Request) -> App:
    app: App = request.app.state.mistnet
    return app


async def the_gauges(request: Request) -> QueueGauges:
    gauges: QueueGauges = request.app.state.gauges
    return gauges


async def the_health(request: Request) -> HealthCheck:
    health: HealthCheck = request.app.state.health
    return health


Mistnet = Annotated[App, Depends(the_app)]
Gauges = Annotated[QueueGauges, Depends(the_gauges)]
Checks = Annotated[HealthCheck, Depends(the_health)]
