"""What people type into a filter, an order or a search stays a value: no table changes, and nothing fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from fastapi.dependencies.models import Dependant
from sqlalchemy import select

from mistnet.api.service import make_service
from mistnet.store import tables
from tests.apis import Api, api_routes, app_on, open_api
from tests.harvests import post, tell, user

HOSTILE = (
    "'; DROP TABLE posts; --",
    '" OR "1"="1',
    "created_at; DELETE FROM users",
    "1) UNION SELECT id, handle FROM users --",
    "%' OR '%' = '\\",
)
ENDLESS = {"/live"}


def filters() -> Iterator[tuple[str, str]]:
    """Every value in the address of every route that only reads: those of the query, and those of the path."""
    for route in api_routes(make_service(app_on("sqlite:///nowhere.db"), host="127.0.0.1")):
        if "GET" in (route.methods or ()) and str(route.path) not in ENDLESS:
            path = str(route.path)
            yield from ((path, f"?{name}=") for name in sorted({*_query(route.dependant)}))
            yield from ((path, name) for name in re.findall(r"\{(\w+)", path))


def _query(of: Dependant) -> Iterator[str]:
    yield from (each.alias for each in of.query_params)
    for below in of.dependencies:
        yield from _query(below)


def address(template: str, name: str, value: str) -> str:
    """With this value in the one place, and with harmless ones in all others."""
    path = re.sub(r"\{(\w+)[^}]*\}", lambda found: quote(value, safe="") if found[1] == name else "1", template)
    return f"{path}{name}{quote(value, safe='')}" if name.startswith("?") else path


async def content(api: Api) -> dict[str, list[Any]]:
    async with api.app.database.read() as connection:
        return {
            name: [tuple(row) for row in await connection.execute(select(table))]
            for name, table in tables.metadata.tables.items()
        }


async def test_no_filter_order_or_search_of_the_api_reaches_the_database_as_sql(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        await tell(api.app, user(1), post(10, 1), post(11, 1))
        before = await content(api)
        asked = [(template, name, value) for template, name in filters() for value in HOSTILE]
        failed = [
            (where, answer.status, answer.body[:200])
            for where in (address(*each) for each in asked)
            if (answer := await api.get(where)).status >= 500
        ]
        assert failed == []
        assert await content(api) == before
        assert len(asked) > 500
