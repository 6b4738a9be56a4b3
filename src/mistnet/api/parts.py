"""What routes are given: the app, and who asks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from mistnet.app import App


def the_app(request: Request) -> App:
    app: App = request.app.state.mistnet
    return app


Mistnet = Annotated[App, Depends(the_app)]
