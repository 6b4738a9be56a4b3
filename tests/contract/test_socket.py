"""The service on a Unix socket: users who may open its file are let in, and a proxy is not."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import typer

from mistnet.cli.listening import listening_on, serving
from mistnet.web.tokens import Scope
from tests.apis import Api, api_on, bearer
from tests.harvests import open_harvest
from tests.support import TurnedClock

pytestmark = pytest.mark.common_sql


@asynccontextmanager
async def open_socket(url: str, path: Path, **settings: Any) -> AsyncIterator[Api]:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock, **settings) as app:
        connector = aiohttp.UnixConnector(str(path))
        with listening_on(path) as listener, api_on(app, host=None) as service:
            async with serving(service, listener), aiohttp.ClientSession(connector=connector) as session:
                yield Api(app=app, service=service, url="http://localhost", session=session, clock=clock, headers={})


async def test_requests_over_the_socket_need_no_token(sqlite_url: str, tmp_path: Path) -> None:
    async with open_socket(sqlite_url, tmp_path / "mistnet.sock", admin_token="an-admin-token-of-the-settings") as api:
        await api.token(Scope.READ)
        assert (await api.get("/api/accounts")).status == 200
        assert (await api.post("/api/jobs/requeue", json={})).status == 200
        assert (await api.get("/api/accounts", headers=bearer("mn_wrong"))).status == 401
        page = await api.get("/", headers={"Accept": "text/html"})
        assert (page.status, "Everyone on this machine" in page.text, "Log out" in page.text) == (200, False, False)


async def test_a_proxy_at_the_socket_speaks_for_strangers(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "mistnet.sock"
    async with open_socket(sqlite_url, path) as api:
        for headers in ({"X-Forwarded-For": "192.0.2.7"}, {"Via": "1.1 proxy"}, {"Host": "mistnet.example.org"}):
            assert (await api.get("/api/accounts", headers=headers)).status == 401, headers
    async with open_socket(sqlite_url, path, trusted_proxies=["unix"]) as api:
        assert (await api.get("/api/accounts")).status == 401
        token = await api.token(Scope.READ)
        headers = {"X-Forwarded-For": "192.0.2.7", "Host": "mistnet.example.org", **bearer(token)}
        assert (await api.get("/api/accounts", headers=headers)).status == 200


def test_only_its_owner_can_open_the_socket_and_its_file_goes_when_it_closes(tmp_path: Path) -> None:
    path = tmp_path / "mistnet.sock"
    before = os.umask(0)
    try:
        with listening_on(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert not path.exists()


def test_a_socket_that_a_killed_process_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mistnet.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with listening_on(path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert listener.getsockname() == str(path)


def test_the_file_of_a_process_that_took_over_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mistnet.sock"
    with listening_on(path) as first:
        first.close()
        with listening_on(path):
            pass
        path.touch()
    assert path.exists()


def test_a_path_that_cannot_be_a_socket_is_told(tmp_path: Path) -> None:
    used, file = tmp_path / "used.sock", tmp_path / "notes.txt"
    file.write_text("mine")
    with listening_on(used):
        for path, said in (
            (used, f"another process listens on {used}: stop it, or name another file"),
            (file, f"{file} exists and is not a socket: name another file"),
            (tmp_path / "nowhere" / "a.sock", "No such file or directory"),
            (tmp_path / ("a" * 120), "too long"),
            (tmp_path / "a\0b", "null"),
        ):
            with pytest.raises(typer.BadParameter) as refused, listening_on(path):
                pass
            assert said in refused.value.message, path
    assert file.read_text() == "mine"
