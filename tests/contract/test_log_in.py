"""How people log in: by a token, by a link that works once, and what becomes of the session."""

from __future__ import annotations

import pytest

from mistnet.api.auth import COOKIE, Scope
from tests.apis import PUBLIC, Api, cookie_of, csrf_of, logged_in, open_api

pytestmark = pytest.mark.common_sql

ADMIN_TOKEN = "an-admin-token-of-the-settings"


def carrying(cookie: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={cookie}"}


async def status(api: Api, cookie: str) -> int:
    return (await api.get("/api/accounts", headers=carrying(cookie))).status


async def test_a_session_never_keeps_the_id_that_a_browser_came_with(url: str) -> None:
    async with open_api(url, host=PUBLIC) as api:
        token = await api.token(Scope.ADMIN)
        planted = "a-session-id-that-a-stranger-chose"
        one = await logged_in(api, token, **carrying(planted))
        assert one != planted
        assert [await status(api, each) for each in (planted, one)] == [401, 200]
        two = await logged_in(api, token, **carrying(one))
        assert two != one
        assert [await status(api, each) for each in (one, two)] == [401, 200]


async def test_a_log_out_ends_the_session_and_no_other(url: str) -> None:
    async with open_api(url, host=PUBLIC) as api:
        token = await api.token(Scope.ADMIN)
        one, two = await logged_in(api, token), await logged_in(api, token)
        left = await api.post("/logout", headers={**carrying(one), "X-CSRF-Token": await csrf_of(api, one)})
        assert (left.status, left.headers["Location"]) == (303, "/login")
        assert f'{COOKIE}=""' in left.headers["Set-Cookie"]
        assert [await status(api, each) for each in (one, two)] == [401, 200]
        again = await logged_in(api, token, **carrying(one))
        assert again != one
        assert [await status(api, each) for each in (one, again)] == [401, 200]


async def test_a_refused_log_in_leaves_the_session_as_it_is(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        cookie = await logged_in(api, await api.token(Scope.READ))
        refused = await api.post("/login", data={"token": "mn_wrong"}, headers=carrying(cookie))
        assert (refused.status, "Set-Cookie" in refused.headers) == (401, False)
        assert await status(api, cookie) == 200


@pytest.mark.parametrize("settings", [{}, {"admin_token": ADMIN_TOKEN}], ids=["no token", "admin token"])
async def test_a_log_in_link_works_once(settings: dict[str, str], url: str) -> None:
    async with open_api(url, host=PUBLIC, **settings) as api:
        link = api.service.state.doorman.links.make()
        answer = await api.get(f"/login/{link}", headers={"Accept": "text/html"})
        assert answer.headers["Location"] == "/"
        cookie = cookie_of(answer)
        assert link not in answer.headers["Set-Cookie"]
        assert "HttpOnly" in answer.headers["Set-Cookie"]
        changed = await api.post(
            "/api/jobs/requeue", json={}, headers={**carrying(cookie), "X-CSRF-Token": await csrf_of(api, cookie)}
        )
        assert changed.status == 200
        again = await api.get(f"/login/{link}", headers={"Accept": "text/html"})
        assert (again.status, "Set-Cookie" in again.headers) == (401, False)
        assert "This link was used already, or it has expired." in again.text
        assert await status(api, cookie) == 200


async def test_a_log_in_link_expires_after_ten_minutes(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        links = api.service.state.doorman.links
        early, late = links.make(), links.make()
        api.clock.turn(minutes=9, seconds=59)
        assert (await api.get(f"/login/{early}")).status == 303
        api.clock.turn(seconds=1)
        assert (await api.get(f"/login/{late}")).status == 401


async def test_only_a_link_that_was_made_logs_in(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        link = api.service.state.doorman.links.make()
        for wrong in ("x", link[:-1], f"{link}x", link.swapcase(), "%00", "a" * 3000):
            answer = await api.get(f"/login/{wrong}")
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False), wrong
        assert (await api.ask("HEAD", f"/login/{link}")).status == 405, "who only looks must not use it up"
        assert (await api.get(f"/login/{link}")).status == 303


async def test_a_session_begun_by_a_link_ends_when_an_admin_token_is_set(url: str) -> None:
    async with open_api(url, host=PUBLIC) as api:
        cookie = cookie_of(await api.get(f"/login/{api.service.state.doorman.links.make()}"))
        assert await status(api, cookie) == 200
    async with open_api(url, host=PUBLIC, admin_token=ADMIN_TOKEN) as api:
        assert await status(api, cookie) == 401
