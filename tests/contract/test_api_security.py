"""Every route refuses every kind of visitor without access."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from io import BytesIO
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from loguru import logger
from yarl import URL

from mistnet.web.auth import COOKIE
from mistnet.web.tokens import Scope, Tokens
from tests.apis import (
    PUBLIC,
    Answer,
    Api,
    api_routes,
    bearer,
    csrf_of,
    described_routes,
    logged_in,
    open_api,
    query_names,
)

pytestmark = pytest.mark.common_sql

ADMIN_TOKEN = "an-admin-token-of-the-settings"
SECRETS: dict[str, Any] = {"admin_token": ADMIN_TOKEN, "x_api_key": ["the-key-of-upstream"]}
OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/login"), ("POST", "/login"), ("GET", "/login/{secret}")}
PUSHED = {("POST", "/webhooks/twitterapi-io"), ("POST", "/webhooks/ifttt/new-x-follower")}
FILLED = {
    "what": "posts",
    "ending": "csv",
    "who": "ann",
    "user_id": "11",
    "kind": "walk",
    "lane": "shopee",
    "change": "pause",
    "name": "x",
    "task_id": "01900000-0000-7000-8000-000000000000",
    "run_id": "01900000-0000-7000-8000-000000000000",
}
BODIES: dict[str, Any] = {
    "/api/admin/scrape": {"usernames": "ann"},
    "/api/accounts": {"handles": ["ann"]},
    "/api/feeds": {"handles": ["ann"]},
    "/api/suggestions": {"handles": ["ann"]},
    "/api/users/{who}/follow-sync": {},
    "/api/jobs/requeue": {},
    "/api/jobs/cancel": {"kind": "walk"},
    "/api/sources/{name}": {"rate": 60},
    "/api/segments/{name}": {"rule": {"kind": "specified_users"}},
    "/api/segments/{name}/inputs": {"add": ["11"]},
    "/api/items": {"items": [{"title": "a coin"}]},
    "/api/items/{item_id}": {"title": "another coin"},
    "/api/price-watches": {"kind": "changed", "product_id": "1", "percent": 10},
}


def _scopes() -> dict[tuple[str, str], Scope | None]:
    return {
        (method, str(route.path)): _scope(route.dependant)
        for route in api_routes(described_routes())
        for method in route.methods or ()
    }


def _scope(of: Dependant) -> Scope | None:
    own = getattr(of.call, "scope", None)
    below = [_scope(each) for each in of.dependencies]
    return max((each for each in (own, *below) if isinstance(each, Scope)), default=None)


SCOPES = _scopes()
GUARDED = sorted(SCOPES.keys() - OPEN - PUSHED)
CHANGING = [each for each in GUARDED if each[0] not in ("GET", "HEAD")]


def path_of(template: str) -> str:
    return re.sub(r"\{(\w+)[^}]*\}", lambda found: FILLED.get(found[1], "1"), template)


async def visit(api: Api, method: str, template: str, **headers: str) -> Answer:
    about: dict[str, Any] = {"json": BODIES[template]} if method != "GET" and template in BODIES else {}
    if method == "POST" and not template.startswith(("/api", "/webhooks")):
        about = {"data": {"confirmed": "yes"}}  # what asks first would change nothing
    if template == "/live":  # a stream without end: who is let in is told by its first line
        async with api.session.get(api.url + template, headers=headers, allow_redirects=False) as answer:
            return Answer(status=answer.status, headers=answer.headers, body=b"")
    return await api.ask(method, path_of(template), headers=headers, **about)


@contextmanager
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), level="TRACE", backtrace=True, diagnose=True)
    try:
        yield lines
    finally:
        logger.remove(sink)


def test_every_route_is_guarded_or_open_on_purpose() -> None:
    assert len(SCOPES) > 40
    assert {route for route, scope in SCOPES.items() if scope is None} == OPEN | PUSHED
    assert [route for route in CHANGING if SCOPES[route] == Scope.READ and route != ("POST", "/logout")] == []


async def test_no_route_answers_without_a_valid_token(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC, **SECRETS) as api:
        for wrong in ({}, bearer("mn_wrong"), {"Authorization": "Basic bW46bW4="}):
            for method, template in [*GUARDED, *PUSHED]:
                answer = await visit(api, method, template, **wrong)
                assert answer.status == 401, (method, template, wrong)
                assert answer.headers["WWW-Authenticate"]
                assert template == "/live" or answer.json["error"]["code"] == "unauthorized"


async def test_no_route_serves_a_scope_that_is_too_small(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        tokens = {scope: await api.token(scope) for scope in Scope}
        for method, template in GUARDED:
            needed = SCOPES[method, template]
            assert needed is not None
            for scope, token in tokens.items():
                answer = await visit(api, method, template, **bearer(token))
                assert (answer.status == 403) == (scope < needed), (method, template, scope, answer)
                assert answer.status not in (401, 500), (method, template, answer)


async def test_a_person_without_a_log_in_is_led_to_it(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        for method, template in GUARDED:
            answer = await visit(api, method, template, Accept="text/html,*/*")
            if template.startswith(("/api", "/metrics")):
                assert answer.status == 401
            else:
                assert (answer.status, answer.headers["Location"]) == (303, "/login"), template
        part = await visit(api, "GET", "/", **{"HX-Request": "true"})
        assert (part.status, part.headers["HX-Redirect"]) == (401, "/login")


async def test_a_log_in_gives_a_cookie_that_scripts_and_other_sites_cannot_use(url: str) -> None:
    async with open_api(url, host=PUBLIC, trusted_proxies=["127.0.0.1"], **SECRETS) as api:
        for token in (await api.token(Scope.READ), ADMIN_TOKEN):
            answer = await api.post("/login", data={"token": token})
            cookie = SimpleCookie(answer.headers["Set-Cookie"])[COOKIE]
            assert (cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (True, "strict", "/")
            assert token not in answer.headers["Set-Cookie"]
            shown = await api.get("/api/accounts", headers={"Cookie": f"{COOKIE}={cookie.value}"})
            assert shown.status == 200
        secure = await api.post("/login", data={"token": ADMIN_TOKEN}, headers={"X-Forwarded-Proto": "https"})
        assert SimpleCookie(secure.headers["Set-Cookie"])[COOKIE]["secure"]


async def test_a_log_in_ends_by_time_by_log_out_and_with_its_token(url: str) -> None:
    async with open_api(url, host=PUBLIC, session_hours=2) as api:
        made, token = await Tokens(api.app.database).make("ann", Scope.ADMIN, now=api.clock.now())
        one, two, three = [await logged_in(api, token) for _ in range(3)]

        async def status(cookie: str) -> int:
            return (await api.get("/api/accounts", headers={"Cookie": f"{COOKIE}={cookie}"})).status

        assert [await status(each) for each in (one, two, three)] == [200] * 3
        headers = {"Cookie": f"{COOKIE}={one}", "X-CSRF-Token": await csrf_of(api, one)}
        assert (await api.post("/logout", headers=headers)).status == 303
        assert [await status(each) for each in (one, two)] == [401, 200]
        await Tokens(api.app.database).revoke(made.id, now=api.clock.now())
        assert await status(two) == 401
        other = await logged_in(api, await api.token(Scope.READ))
        api.clock.turn(hours=2)
        assert await status(other) == 401


async def test_a_log_in_by_the_admin_token_ends_when_that_changes(url: str) -> None:
    async with open_api(url, host=PUBLIC, admin_token=ADMIN_TOKEN) as api:
        cookie = await logged_in(api, ADMIN_TOKEN)
    for token, status in ((ADMIN_TOKEN, 200), ("another-admin-token", 401)):
        async with open_api(url, host=PUBLIC, admin_token=token) as api:
            assert (await api.get("/api/accounts", headers={"Cookie": f"{COOKIE}={cookie}"})).status == status


async def test_no_change_is_made_with_a_cookie_alone(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        cookie = {"Cookie": f"{COOKIE}={await logged_in(api, await api.token(Scope.ADMIN))}"}
        csrf = await csrf_of(api, cookie["Cookie"].partition("=")[2])
        for method, template in CHANGING:
            for headers in (
                {},
                {"X-CSRF-Token": "wrong"},
                {"X-CSRF-Token": csrf, "Origin": "https://evil.example"},
                {"X-CSRF-Token": csrf, "Sec-Fetch-Site": "cross-site"},
                {"X-CSRF-Token": csrf, "Sec-Fetch-Site": "same-site"},
            ):
                answer = await visit(api, method, template, **cookie, **headers)
                assert answer.status == 403, (method, template, headers)
        for method, template in sorted(CHANGING, key=lambda route: route[1] == "/logout"):
            answer = await visit(api, method, template, **cookie, **{"X-CSRF-Token": csrf, "Origin": api.url})
            assert answer.status != 403, (method, template)


async def test_the_csrf_token_may_come_as_a_field_of_a_form(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        cookie = {"Cookie": f"{COOKIE}={await logged_in(api, await api.token(Scope.ADMIN))}"}
        csrf = await csrf_of(api, cookie["Cookie"].partition("=")[2])
        assert (await api.post("/jobs/requeue", data={"csrf": "wrong"}, headers=cookie)).status == 403
        assert (await api.post("/jobs/requeue", data={"csrf": csrf}, headers=cookie)).status == 303


async def test_a_program_on_this_machine_needs_no_token_as_long_as_there_is_none(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        port = api.url.rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
            assert (await api.get("/api/accounts", headers={"Host": host})).status == 200, host
        assert (await api.post("/api/jobs/requeue", json={})).status == 200
        assert (await api.get("/api/accounts", headers=bearer("mn_wrong"))).status == 401


async def test_a_program_on_this_machine_needs_a_token_once_one_was_made(url: str) -> None:
    async with open_api(url) as api:
        assert (await api.get("/api/accounts")).status == 200
        made, token = await Tokens(api.app.database).make("ann", Scope.READ, now=api.clock.now())
        api.clock.turn(seconds=1)
        assert (await api.get("/api/accounts")).status == 401
        assert (await api.post("/api/jobs/requeue", json={})).status == 401
        assert (await api.get("/api/accounts", headers=bearer(token))).status == 200
        assert (await api.post("/api/jobs/requeue", json={}, headers=bearer(token))).status == 403
        await Tokens(api.app.database).revoke(made.id, now=api.clock.now())
        assert (await api.get("/api/accounts")).status == 401, "a revoked token must not open the service to everybody"


async def test_a_program_on_this_machine_needs_a_token_where_the_settings_have_one(sqlite_url: str) -> None:
    async with open_api(sqlite_url, admin_token=ADMIN_TOKEN) as api:
        for method, template in GUARDED:
            assert (await visit(api, method, template)).status == 401, (method, template)
        assert (await api.get("/api/accounts", headers=bearer(ADMIN_TOKEN))).status == 200


NOT_LOCAL = (
    {"Host": "evil.example"},
    {"Host": "127.0.0.1"},
    {"Host": "localhost"},
    {"Host": "127.0.0.1:80"},
    {"Host": "[::1]:{port}"},
    {"Host": "127.0.0.2:{port}"},
    {"Host": "127.0.0.1:{port}.evil.example"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "localhost.evil.example:{port}"},
    {"Host": "evil@127.0.0.1:{port}@evil.example"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded": "for=127.0.0.1"},
    {"X-Forwarded-Host": "localhost"},
    {"X-Forwarded-Proto": "http"},
    {"X-Forwarded-Port": "443"},
    {"X-Real-IP": "127.0.0.1"},
    {"Forwarded": "for=127.0.0.1"},
    {"Via": "1.1 proxy"},
    {"CF-Connecting-IP": "127.0.0.1"},
    {"CF-Ray": "8a1b2c3d4e5f6789-TPE"},
    {"True-Client-IP": "127.0.0.1"},
    {"Fly-Client-IP": "127.0.0.1"},
    {"Fastly-Client-IP": "127.0.0.1"},
    {"X-Client-IP": "127.0.0.1"},
    {"X-Cluster-Client-IP": "127.0.0.1"},
    {"X-Envoy-External-Address": "127.0.0.1"},
    {"X-Amzn-Trace-Id": "Root=1-67891233-abcdef012345678912345678"},
    {"Tailscale-User-Login": "ann@example.org"},
)


async def test_requests_through_a_proxy_or_under_another_name_are_not_local(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        port = api.url.rpartition(":")[2]
        for given in NOT_LOCAL:
            headers = {name: value.replace("{port}", port) for name, value in given.items()}
            for path in ("/api/accounts", "/health", "/metrics", "/api/openapi.json"):
                assert (await api.get(path, headers=headers)).status == 401, (headers, path)


async def test_requests_are_refused_while_the_tokens_cannot_be_read(sqlite_url: str) -> None:
    async with open_api("postgresql://mistnet@127.0.0.1:1/mistnet") as api:
        assert (await api.get("/api/docs")).status == 503


async def test_a_trusted_proxy_on_this_machine_is_never_local_even_if_it_says_nothing(sqlite_url: str) -> None:
    async with open_api(sqlite_url, trusted_proxies=["127.0.0.0/8"]) as api:
        assert (await api.get("/api/accounts")).status == 401


async def test_the_pages_say_that_everybody_on_this_machine_is_let_in(sqlite_url: str) -> None:
    open_to_all = "Everyone on this machine can see and change everything here."
    async with open_api(sqlite_url) as api:
        for path in ("/", "/accounts", "/sources", "/search", "/jobs/77"):
            assert open_to_all in (await api.get(path, headers={"Accept": "text/html"})).text, path
        cookie = await logged_in(api, await api.token(Scope.ADMIN))
        shown = await api.get("/", headers={"Accept": "text/html", "Cookie": f"{COOKIE}={cookie}"})
        assert (shown.status, open_to_all in shown.text) == (200, False)


async def test_on_a_public_bind_this_machine_is_like_any_other(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        assert (await api.get("/api/accounts")).status == 401


async def test_a_browser_on_this_machine_changes_nothing_for_another_site(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        csrf = api.service.state.authenticator._local_csrf
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-origin"},
            {"Origin": api.url},
            {"Origin": "https://evil.example", "X-CSRF-Token": csrf},
        ):
            assert (await api.post("/api/jobs/requeue", json={}, headers=headers)).status == 403, headers
        own = {"Origin": api.url, "Sec-Fetch-Site": "same-origin", "X-CSRF-Token": csrf}
        assert (await api.post("/api/jobs/requeue", json={}, headers=own)).status == 200


async def test_a_log_in_made_by_another_site_is_refused(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC, admin_token=ADMIN_TOKEN) as api:
        answer = await api.post("/login", data={"token": ADMIN_TOKEN}, headers={"Origin": "https://evil.example"})
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


async def test_a_token_is_noted_when_used_and_void_when_revoked(url: str) -> None:
    async with open_api(url, host=PUBLIC) as api:
        tokens = Tokens(api.app.database)
        made, token = await tokens.make("ann", Scope.READ, now=api.clock.now())
        first = api.clock.turn(minutes=5)
        assert (await api.get("/api/accounts", headers=bearer(token))).status == 200
        api.clock.turn(seconds=30)
        await api.get("/api/accounts", headers=bearer(token))
        assert [each.last_used_at for each in await tokens.listed()] == [first]
        later = api.clock.turn(minutes=1)
        await api.get("/api/accounts", headers=bearer(token))
        assert [each.last_used_at for each in await tokens.listed()] == [later]
        assert (await tokens.revoke(made.id, now=later)) is not None
        assert (await tokens.revoke(made.id, now=later)) is None
        assert (await api.get("/api/accounts", headers=bearer(token))).status == 401


async def test_tokens_and_log_ins_are_not_in_the_database(url: str) -> None:
    async with open_api(url, host=PUBLIC, **SECRETS) as api:
        token = await api.token(Scope.ADMIN)
        cookie = await logged_in(api, token)
        async with api.app.database.read() as connection:
            found = [
                str(row)
                for table in ("api_tokens", "sessions")
                for row in await connection.exec_driver_sql(f"SELECT * FROM {table}")
            ]
        assert len(found) == 2
        assert not [secret for secret in (token, cookie, ADMIN_TOKEN) if secret in "".join(found)]


async def test_large_requests_are_refused_whether_they_say_so_or_not(sqlite_url: str) -> None:
    async with open_api(sqlite_url, x_api_key=["push-key-one"]) as api:
        large = json.dumps({"handles": ["a" * (1024 * 1024)]}).encode()

        async def in_parts() -> AsyncIterator[bytes]:
            for start in range(0, len(large), 65_536):
                yield large[start : start + 65_536]

        as_json = {"Content-Type": "application/json"}
        for body in (BytesIO(large), in_parts()):
            answer = await api.post("/api/accounts", data=body, headers=as_json)
            assert (answer.status, answer.json["error"]["code"]) == (413, "too_large")
        key = {"X-API-Key": "push-key-one"}
        for size, headers, status in ((1, key, 400), (9, key, 413), (9, {}, 401)):
            answer = await api.post("/webhooks/twitterapi-io", data=BytesIO(large * size), headers=headers)
            assert answer.status == status


async def test_bodies_that_are_not_json_are_refused(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"):
            answer = await api.post("/api/accounts", data=b'{"handles": ["ann"]}', headers={"Content-Type": kind})
            assert answer.status == 415, kind
        broken = await api.post("/api/accounts", data=b"{", headers={"Content-Type": "application/json"})
        assert (broken.status, list(broken.problems)) == (400, ["body"])


LONG_NUMBERS = (
    "9" * 5_000,
    "0" * 5_000 + "1",
    "0" * 19 + "1" + "9" * 5_000,
    "-" + "9" * 5_000,
    "1" * 25,
    "\u0663" * 5_000,
)


@pytest.mark.in_turn(0)
async def test_numbers_of_any_length_in_paths_and_queries_are_refused_or_not_found(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        for route in api_routes(api.service):
            template, (method, *_) = str(route.path), sorted(route.methods or ())
            names = query_names(route.dependant) if template != "/live" else set()  # a stream without end
            filled = [re.sub(r"\{(\w+)[^}]*\}", number, template) for number in LONG_NUMBERS]
            paths = [path for path in filled if path != template]
            queries = ["&".join(f"{name}={number}" for name in names) for number in LONG_NUMBERS]
            paths += [f"{path_of(template)}?{query}" for query in queries if query]
            paths += [f"{path_of(template)}?{name}={LONG_NUMBERS[0]}" for name in names]
            for path in paths:
                answer = await api.ask(method, path)
                assert answer.status < 500, (method, path[:100], answer.text[:200])


async def test_numbers_of_any_length_in_forms_are_refused(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        for route in api_routes(api.service):
            for name in [each.alias for each in route.dependant.body_params]:
                for number in LONG_NUMBERS:
                    answer = await api.post(path_of(str(route.path)), data={name: number})
                    assert answer.status < 500, (route.path, name, number[:30], answer.text[:200])


async def test_every_answer_keeps_browsers_careful(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        for path in ("/healthz", "/", "/nothing", "/api/nothing", "/api/accounts?limit=x", "/static/nothing", "/login"):
            headers = (await api.get(path, headers={"Accept": "text/html"})).headers
            policy = headers["Content-Security-Policy"]
            scripts = re.search(r"script-src ([^;]*)", policy)
            assert scripts is not None
            assert "unsafe" not in scripts[1], path
            assert "frame-ancestors 'none'" in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "same-origin"
            assert "server" not in {name.lower() for name in headers}
            if not path.startswith("/static"):
                assert headers["Cache-Control"] == "no-store"


LEADING_OUT = (
    "/static/../auth.py",
    "/static/%2e%2e/auth.py",
    "/static/..%2fauth.py",
    "/static/....//auth.py",
    "/static/%2e%2e%2f%2e%2e%2fapp.py",
    "/static//etc/passwd",
    "/static/%00",
    "/static/..\\auth.py",
)


async def test_no_path_leads_out_of_the_assets(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        for path in LEADING_OUT:
            async with api.session.get(URL(api.url + path, encoded=True)) as answer:
                assert answer.status in (400, 404), path
                assert "import" not in await answer.text(), path


async def test_what_is_sent_never_becomes_a_header(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        for path in (
            "/api/accounts/%0d%0aSet-Cookie:%20a=b",
            "/api/admin/scrape/%0d%0aSet-Cookie:%20a=b",
            "/conversations/%0d%0aSet-Cookie:%20a=b",
            "/login?next=%0d%0aSet-Cookie:%20a=b",
        ):
            async with api.session.get(URL(api.url + path, encoded=True), allow_redirects=False) as answer:
                assert answer.status < 500
                assert "Set-Cookie" not in answer.headers


async def test_a_database_that_is_away_is_said_without_its_password(sqlite_url: str) -> None:
    away = "postgresql://mistnet:the-database-password@127.0.0.1:1/mistnet"
    with logged() as lines:
        async with open_api(away, **SECRETS) as api:
            assert (await api.get("/healthz")).status == 200
            for method, template in [*GUARDED, ("GET", "/readyz")]:
                if template in ("/live", "/logout", "/search", "/metrics", "/api/docs", "/api/openapi.json"):
                    continue  # these need no database
                answer = await visit(api, method, template, **bearer(ADMIN_TOKEN))
                assert answer.status in (303, 404, 503), (method, template, answer)
                assert not re.search(r"the-database-password|127\.0\.0\.1:1/|postgresql", answer.text)
                if answer.status == 503:
                    assert int(answer.headers["Retry-After"]) > 0
            away_from_all = await api.get("/api/accounts", headers=bearer(ADMIN_TOKEN))
            assert away_from_all.json["error"]["code"] == "unavailable"
            assert "mistnet_database_up 0.0" in (await api.get("/metrics", headers=bearer(ADMIN_TOKEN))).text
    assert lines
    assert "the-database-password" not in "".join(lines)


async def test_no_secret_is_in_any_answer_or_in_the_log(sqlite_url: str) -> None:
    secrets = ("an-admin-token-of-the-settings", "the-key-of-upstream")
    with logged() as lines:
        async with open_api(sqlite_url, **SECRETS) as api:
            token = await api.token(Scope.ADMIN)
            for method, template in GUARDED:
                answer = await visit(api, method, template, **bearer(token))
                assert not [each for each in (*secrets, token) if each in answer.text + str(answer.headers)]
            await api.get(f"/api/accounts?token={token}", headers=bearer(token))
            await api.post("/login", data={"token": f"{token}x"})
            wrong = await api.post("/api/accounts", json={"handles": [token]}, headers=bearer(token))
            assert wrong.status == 400
    assert not [each for each in (*secrets, token) if each in "".join(lines)]


async def test_a_bug_shows_nothing_of_itself(sqlite_url: str) -> None:
    with logged() as lines:
        async with open_api(sqlite_url) as api:

            @api.service.get("/broken/{what}")
            async def broken(what: str) -> None:
                raise RuntimeError("inner secrets")

            answer = await api.get(f"/broken/{'9' * 5_000}")
            assert (answer.status, "inner" in answer.text) == (500, False)
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "inner secrets" in "".join(lines)
    assert "9" * 300 not in "".join(lines)
    assert "Traceback" not in "".join(lines)


async def test_no_token_whatever_breaks_the_log_in(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC, admin_token=ADMIN_TOKEN) as api:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        for body in (b"", b"token=", b"token=%00", b"token=%ff%fe", b"token=%ed%a0%80", b"token=mn_%00", b"&&&=;"):
            assert (await api.post("/login", data=body, headers=form)).status == 401, body
        long = await api.post("/login", data=b"token=" + b"a" * 5000, headers=form)
        assert long.status == 400
        for value in ("Bearer", "Bearer ", "Bearer mn_\xff", "bearer mn_", "Token a", "\xff"):
            assert (await api.get("/api/accounts", headers={"Authorization": value})).status == 401, value
        for cookie in ("", "\xff", "a" * 3000, "%00"):
            assert (await api.get("/api/accounts", headers={"Cookie": f"{COOKIE}={cookie}"})).status == 401, cookie
