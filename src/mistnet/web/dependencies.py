"""Dependencies of routes: the app and the objects of the service. Async, because FastAPI runs others in threads."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from mistnet.app import App
from mistnet.operations.health import HealthCheck, QueueGauges
from mistnet.social.model import PLATFORM_NAME, Platform
from mistnet.web.errors import BadInput, FieldProblem


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


async def _known_platform(
    mistnet: Mistnet,
    platform: Annotated[
        str | None, Query(pattern=f"^{PLATFORM_NAME}$", description="The name of a platform, such as x.")
    ] = None,
) -> Platform | None:
    """The platforms are those whose sources this app has, so the schema alone cannot check the name."""
    if platform is not None and platform not in mistnet.platforms:
        known = " or ".join(f"'{each}'" for each in mistnet.platforms)
        raise BadInput([FieldProblem(field="platform", problem=f"Input should be {known}")])
    return None if platform is None else Platform(platform)


OnPlatform = Annotated[Platform | None, Depends(_known_platform)]
