"""Behind nginx and Caddy: what they send with the samples of the docs, and what careless proxies send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mistnet.web.auth import COOKIE
from mistnet.web.tokens import Scope
from tests.apis import Api, open_api

pytestmark = pytest.mark.common_sql

PAGE = Path(__file__).parents[2] / "docs" / "deploying-behind-a-proxy.md"
SITE = "mistnet.example.org"
CLIENT, SPOOFED = "192.0.2.7", "6.6.6.6"
BROWSER = {"Origin": f"https://{SITE}", "Sec-Fetch-Site": "same-origin"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TRUSTED: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"]}

SentBy: TypeAlias = Callable[[str], tuple[str, dict[str, str]]]
"""The version of HTTP and the headers of a proxy, given the address that it connects to."""


def sample(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, language
    return found[1]


def sent_by_nginx(upstream: str) -> tuple[str, dict[str, str]]:
    """What nginx makes of a client that lies about where it comes from: the variables of the sample, filled in."""
    values = {
        "$http_host": SITE,
        "$proxy_add_x_forwarded_for": f"{SPOOFED}, {CLIENT}",
        "$scheme": "https",
    }
    text = sample("nginx")
    assert "proxy_pass http://127.0.0.1:8470;" in text
    version = re.search(r"proxy_http_version (\S+);", text)
    headers = {"Host": upstream, **dict(re.findall(r"proxy_set_header (\S+) (\S+);", text))}
    return version[1] if version else "1.0", {
        **{name: values.get(value, value) for name, value in headers.items()},
        "Connection": "close",
    }


def sent_by_caddy(_upstream: str) -> tuple[str, dict[str, str]]:
    """What Caddy 2 sends for a bare `reverse_proxy`: of the headers that clients may fake it takes none over."""
    assert re.fullmatch(rf"{re.escape(SITE)} {{\s+reverse_proxy 127\.0\.0\.1:8470\s+}}\n", sample("caddyfile"))
    lines = (PAGE.parents[1] / "deploy" / "Caddyfile").read_text(encoding="utf-8").splitlines(keepends=True)
    assert "".join(line.expandtabs(4) for line in lines if line[0] != "#") == sample("caddyfile")
    return "1.1", {
        "Host": SITE,
        "X-Forwarded-For": CLIENT,
        "X-Forwarded-Host": SITE,
        "X-Forwarded-Proto": "https",
        "Accept-Encoding": "gzip",
        "Connection": "close",
    }


SAMPLES = (sent_by_nginx, sent_by_caddy)


def upstream_of(api: Api) -> str:
    return api.url.removeprefix("http://")


async def send(
    api: Api, request: str, version: str, headers: Mapping[str, str], body: str = ""
) -> tuple[int, dict[str, str]]:
    """One request as it stands, and the status and headers of the answer."""
    reader, writer = await asyncio.open_connection(*upstream_of(api).split(":"))
    length = {"Content-Length": str(len(body))} if body else {}
    lines = [f"{request} HTTP/{version}", *(f"{name}: {value}" for name, value in {**headers, **length}.items())]
    writer.write("\r\n".join([*lines, "", body]).encode())
    head, _, _ = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    first, *rest = head.split("\r\n")
    return int(first.split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}


@pytest.mark.parametrize("sent_by", SAMPLES)
async def test_with_a_sample_of_the_docs_people_log_in_and_strangers_do_not(sent_by: SentBy, sqlite_url: str) -> None:
    async with open_api(sqlite_url, **TRUSTED) as api:
        token = await api.token(Scope.OPERATE)
        version, headers = sent_by(upstream_of(api))
        assert (await send(api, "GET /api/accounts", version, headers))[0] == 401
        status, answer = await send(api, "POST /login", version, {**headers, **BROWSER, **FORM}, f"token={token}")
        assert (status, answer["location"]) == (303, "/")
        cookie = SimpleCookie(answer["set-cookie"])[COOKIE]
        assert cookie["secure"]
        shown = {**headers, "Cookie": f"{COOKIE}={cookie.value}"}
        assert (await send(api, "GET /api/accounts", version, shown))[0] == 200
        visitor = await api.service.state.authenticator.sessions.find(cookie.value, now=api.clock.now())
        form = f"csrf={visitor.csrf}"
        assert (await send(api, "POST /jobs/requeue", version, {**shown, **BROWSER, **FORM}, form))[0] == 303


@pytest.mark.parametrize("sent_by", SAMPLES)
@pytest.mark.parametrize("settings", [{}, TRUSTED], ids=["not trusted", "trusted"])
async def test_a_proxy_gives_no_admin_rights_while_there_is_no_token(
    sent_by: SentBy, settings: dict[str, Any], sqlite_url: str
) -> None:
    async with open_api(sqlite_url, **settings) as api:
        assert (await send(api, "GET /api/accounts", *sent_by(upstream_of(api))))[0] == 401


async def test_a_bare_proxy_pass_gives_no_admin_rights(sqlite_url: str) -> None:
    """It sends the address it connects to as Host and no header of its own, in HTTP/1.0; newer ones in HTTP/1.1."""
    async with open_api(sqlite_url) as api:
        bare = {"Host": upstream_of(api), "Connection": "close", "User-Agent": "curl/7.88.1", "Accept": "*/*"}
        assert (await send(api, "GET /api/accounts", "1.0", bare))[0] == 401
        await api.token(Scope.READ)
        api.clock.turn(seconds=1)
        for version in ("1.0", "1.1"):
            assert (await send(api, "GET /api/accounts", version, bare))[0] == 401


async def test_a_relay_gives_no_admin_rights_once_there_is_a_token(sqlite_url: str) -> None:
    """A relay of TCP or TLS connections hands on what its client made up."""
    async with open_api(sqlite_url) as api:
        made_up = {"Host": f"localhost:{upstream_of(api).rpartition(':')[2]}", "Connection": "close"}
        assert (await send(api, "GET /api/accounts", "1.1", {**made_up, "Host": SITE}))[0] == 401
        await api.token(Scope.READ)
        api.clock.turn(seconds=1)
        assert (await send(api, "GET /api/accounts", "1.1", made_up))[0] == 401
