"""How people log in: by a token, by a link that works once, and what becomes of the session."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mistnet.web.auth import COOKIE
from mistnet.web.tokens import Scope
from tests.apis import PUBLIC, Api, bearer, cookie_of, csrf_of, logged_in, open_api

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
        link = api.service.state.authenticator.links.make()
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
        assert "This link was used or has expired." in again.text
        assert await status(api, cookie) == 200


async def test_a_log_in_link_expires_after_ten_minutes(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        links = api.service.state.authenticator.links
        early, late = links.make(), links.make()
        api.clock.turn(minutes=9, seconds=59)
        assert (await api.get(f"/login/{early}")).status == 303
        api.clock.turn(seconds=1)
        assert (await api.get(f"/login/{late}")).status == 401


async def test_only_a_link_that_was_made_logs_in(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        link = api.service.state.authenticator.links.make()
        for wrong in ("x", link[:-1], f"{link}x", link.swapcase(), "%00", "a" * 3000):
            answer = await api.get(f"/login/{wrong}")
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False), wrong
        assert (await api.ask("HEAD", f"/login/{link}")).status == 405, "who only looks must not use it up"
        assert (await api.get(f"/login/{link}")).status == 303


async def test_a_session_begun_by_a_link_ends_when_an_admin_token_is_set(url: str) -> None:
    async with open_api(url, host=PUBLIC) as api:
        cookie = cookie_of(await api.get(f"/login/{api.service.state.authenticator.links.make()}"))
        assert await status(api, cookie) == 200
    async with open_api(url, host=PUBLIC, admin_token=ADMIN_TOKEN) as api:
        assert await status(api, cookie) == 401


WEAK_TOKEN = "passwordpassword"
TRUSTING: dict[str, Any] = {"host": PUBLIC, "trusted_proxies": ["127.0.0.1"]}


def coming_from(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


async def fail_to_log_in(api: Api, times: int, **headers: str) -> list[int]:
    return [(await api.post("/login", data={"token": f"guess-{n}"}, headers=headers)).status for n in range(times)]


async def test_failed_log_ins_are_rate_limited(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC, admin_token=ADMIN_TOKEN) as api:
        assert await fail_to_log_in(api, 12) == [401] * 10 + [429] * 2
        refused = await api.post("/login", data={"token": "guess"}, headers={"Accept": "text/html"})
        assert (refused.status, 0 < int(refused.headers["Retry-After"]) <= 60) == (429, True)
        assert re.search(r"too many failed tries: wait \d+ seconds?, then try again", refused.text)
        guessed = await api.get("/api/accounts", headers=bearer("another-guess"))
        assert (guessed.status, guessed.json["error"]["code"]) == (429, "too_many_requests")


@pytest.mark.parametrize("settings", [{"host": PUBLIC}, TRUSTING], ids=["not trusted", "trusted"])
async def test_a_right_token_is_never_refused_for_the_failures_of_others(
    settings: dict[str, Any], sqlite_url: str
) -> None:
    """A proxy that is not trusted makes all its clients one address, so that their failures are counted together."""
    async with open_api(sqlite_url, admin_token=ADMIN_TOKEN, **settings) as api:
        made = await api.token(Scope.READ)
        assert 429 in await fail_to_log_in(api, 120, **coming_from("6.6.6.6"))
        for number in range(120):
            await fail_to_log_in(api, 1, **coming_from(f"6.6.7.{number}"))
        for token in (ADMIN_TOKEN, made):
            for address in ("7.7.7.7", "6.6.6.6"):
                assert await logged_in(api, token, **coming_from(address))
                asked = await api.get("/api/accounts", headers={**bearer(token), **coming_from(address)})
                assert asked.status == 200, (token, address)


async def test_failures_are_counted_by_the_real_address_of_the_client(sqlite_url: str) -> None:
    async with open_api(sqlite_url, admin_token=ADMIN_TOKEN, **TRUSTING) as api:
        assert (await fail_to_log_in(api, 11, **coming_from("6.6.6.6")))[-1] == 429
        assert await fail_to_log_in(api, 1, **coming_from("7.7.7.7")) == [401]
        assert await fail_to_log_in(api, 1, **coming_from("7.7.7.7, 6.6.6.6")) == [429], "a client may make up the left"
    async with open_api(sqlite_url, host=PUBLIC, admin_token=ADMIN_TOKEN) as api:
        made_up = [(await fail_to_log_in(api, 1, **coming_from(f"6.6.6.{number}")))[0] for number in range(11)]
        assert made_up[-1] == 429, "who is not trusted cannot change addresses at will"


async def test_an_admin_token_that_is_easy_to_guess_is_not_tried_on_and_on(sqlite_url: str) -> None:
    async with open_api(sqlite_url, admin_token=WEAK_TOKEN, **TRUSTING) as api:
        await fail_to_log_in(api, 10, **coming_from("6.6.6.6"))
        guesser = coming_from("6.6.6.6")
        assert (await api.post("/login", data={"token": WEAK_TOKEN}, headers=guesser)).status == 429
        assert (await api.get("/api/accounts", headers={**bearer(WEAK_TOKEN), **guesser})).status == 429
        assert await logged_in(api, WEAK_TOKEN, **coming_from("7.7.7.7"))
        assert await logged_in(api, await api.token(Scope.READ), **guesser)
