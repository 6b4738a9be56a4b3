"""The description of the API is true: whatever fits it is answered as it says, and whatever does not is refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Iterator
from typing import Any, Self
from urllib.request import Request, urlopen

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi.checks import positive_data_acceptance

from mistnet.app import App
from mistnet.cli.listening import listen, serving, url_of
from mistnet.graph.segments.rules import read_rule
from mistnet.social.accounts import AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import THREADS, Unreadable, UserId, X
from mistnet.web.application import describe, operations
from mistnet.web.tokens import Scope, Tokens
from tests.apis import PUBLIC, api_on, api_routes, app_on, described_routes, query_names
from tests.databases import Templates
from tests.followed import follow, point, tell_prices
from tests.harvests import end_badly, post, tell, user
from tests.seeds import ROTATION
from tests.shelves import crawl, job, link, mention, offer, product

KEY = "the-key-of-upstream"
PATIENCE = 120  # a busy machine is not a server that does not answer
FEW = 2
EXAMPLES = int(os.environ.get("MISTNET_TEST_API_EXAMPLES", FEW))
EXCLUDED: dict[str, list[Any]] = {
    "/api/posts": [positive_data_acceptance],  # a search for nothing but signs is refused, which no schema can say
    # Titles without a letter, unknown currencies and sources, and unsupported pages are refused by what they say.
    "/api/items": [positive_data_acceptance],
    "/api/items/{item_id}": [positive_data_acceptance],
    "/api/items/{item_id}/ask": [positive_data_acceptance],
    # A rule may name segments that are not there, and ids that are not stored are asked of a source that is not there.
    "/api/segments/{name}": [positive_data_acceptance, not_a_server_error],
    "/api/segments/{name}/inputs": [positive_data_acceptance, not_a_server_error],
}

load_all_checks()


class Running:
    """The service with some content, in a thread with a loop of its own."""

    def __init__(self, url: str) -> None:
        self._database_url = url
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="service")
        self.url = self.token = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = app_on(self._database_url, x_api_key=[KEY], x_base_url="http://127.0.0.1:9")
        listener = listen("127.0.0.1", 0)
        try:
            await _fill(app)
            _, self.token = await Tokens(app.database).make("all", Scope.ADMIN, now=app.database.clock.now())
            self.url = url_of(listener)
            with api_on(app, host=PUBLIC) as service:
                async with serving(service, listener):
                    self._ready.set()
                    await self._stop.wait()
        finally:
            listener.close()
            await app.database.close()


async def _fill(app: App) -> None:
    """Something with each of the ids that are tried first."""
    people = [user(each, handle, name="N") for each, handle in ((1, "A"), (2, "0"), (3, "_"))]
    await tell(app, *people, *(AccountTracked(platform=X, user_id=UserId(each)) for each in (1, 2, 3)))
    await tell(app, *(user(1, "A", name=name) for name in ("B", "C")))
    await tell(app, post(1, 1), post(2, 1, answers=1, conversation=1), post(10, 2, answers=9, conversation=1))
    broken = [Unreadable(platform=X, endpoint="tweets", problem="p", payload=b"{%d" % n) for n in range(3)]
    await tell(app, *broken)
    await app.enqueue([args.backfill(UserId(each)) for each in (1, 2)])
    await end_badly(app, args.relook(UserId(1)), args.relook(UserId(2)))
    await _stock(app)
    for title in ("A", "0", "_1"):
        await tell_prices(app, await follow(app, title, ref=title), [point("12.50", title, app.database.clock.now())])
    await app.segments.define("a", read_rule("a", {"kind": "specified_users"}))
    await app.segments.store.add_inputs("a", [UserId(1), UserId(2)], now=app.database.clock.now())


async def _stock(app: App) -> None:
    database = app.database
    things = [await product(database, str(number)) for number in range(3)]
    for number, thing in enumerate(things):
        own = await link(database, f"https://shopee.tw/product/1/{number}", product_id=thing)
        await link(database, f"https://s.shopee.tw/{number}", kind="short", leads_to=own)
        for post_id in (1, 2, 10):
            await mention(database, own, post_id, nr=number)
        for amount, doubt in (("12.50", None), ("1250", "a hundred times the last"), (None, None)):
            await offer(database, thing, amount, doubt=doubt)
        await crawl(database, own, "blocked")
        await crawl(database, own)
        await job(database, "shopee", "dead", key=f"https://shopee.tw/product/1/{number}")


@pytest.fixture(scope="module")
def on_sqlite(templates: Templates) -> Iterator[Running]:
    with Running(templates.sqlite()) as running:
        yield running


@pytest.fixture(scope="module")
def on_postgresql(templates: Templates, postgres_dsn: str) -> Iterator[Running]:
    with Running(templates.postgresql(postgres_dsn)) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def running(request: pytest.FixtureRequest) -> Running:
    found: Running = request.getfixturevalue(f"on_{request.param}")
    return found


ROUTES = [route for route in api_routes(described_routes()) if route.include_in_schema]
LABELS = sorted(f"{method} {route.path_format}" for route in ROUTES for method in route.methods or ())
READS = [label for label in LABELS if label.startswith("GET ")]
PAGED = [str(route.path_format) for route in ROUTES if "cursor" in query_names(route.dependant)]


def share(labels: list[str], of: int) -> list[str]:
    """One in so many; which ones changes with the commit. A longer search takes all."""
    return labels if EXAMPLES > FEW else labels[ROTATION % of :: of]


COVERED = share(LABELS, 8)
"""Every limit of every parameter of these is tried."""
COMMON = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """Made where tests run, not in every process that collects them: it takes two seconds."""
    return dict(describe(described_routes(), [X, THREADS]))


@pytest.fixture(scope="module")
def wide(
    request: pytest.FixtureRequest, described: dict[str, Any], narrow: schemathesis.BaseSchema
) -> schemathesis.BaseSchema:
    """Questions at random and at every limit; for the daily loop those at random will do."""
    if request.config.option.no_services:
        return narrow
    schema = schemathesis.openapi.from_dict(described)
    schema.config.phases.coverage.unexpected_methods = {"TRACE"}
    return schema


@pytest.fixture(scope="module")
def narrow(described: dict[str, Any]) -> schemathesis.BaseSchema:
    """Questions at random alone."""
    schema = schemathesis.openapi.from_dict(described)
    schema.config.phases.coverage.enabled = False
    return schema


def test_every_route_and_every_list_of_pages_is_described(described: dict[str, Any]) -> None:
    told = list(operations(described))
    assert sorted(f"{method} {path}" for path, method, _ in told) == LABELS
    paged = [path for path, _, about in told if "cursor" in {each["name"] for each in about.get("parameters", ())}]
    assert sorted(PAGED) == sorted(paged)


@pytest.mark.parametrize("label", share(LABELS, 2))
def test_every_operation_answers_as_it_is_described(
    label: str, wide: schemathesis.BaseSchema, narrow: schemathesis.BaseSchema, on_sqlite: Running
) -> None:
    ask(label, wide if label in COVERED else narrow, on_sqlite, examples=EXAMPLES)


@pytest.mark.parametrize("label", share(READS, 8))
def test_every_read_answers_as_it_is_described_on_postgresql(
    label: str, narrow: schemathesis.BaseSchema, on_postgresql: Running
) -> None:
    ask(label, narrow, on_postgresql, examples=max(2, EXAMPLES // 3))


def ask(label: str, schema: schemathesis.BaseSchema, running: Running, *, examples: int) -> None:
    """All that Schemathesis makes up for one operation. Its own `parametrize` would do so when tests are collected, in
    every process of a run, which took longer than many tests."""
    method, _, path = label.partition(" ")

    @settings(COMMON, max_examples=examples)
    def answers(case: schemathesis.Case[Any]) -> None:
        call(case, running)

    build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=answers,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()


def call(case: schemathesis.Case[Any], running: Running) -> None:
    headers = {"Authorization": f"Bearer {running.token}"}
    if case.path.startswith("/webhooks"):
        headers = {"X-API-Key": KEY}
    case.call_and_validate(
        base_url=running.url, headers=headers, timeout=PATIENCE, excluded_checks=EXCLUDED.get(case.path, [])
    )


@pytest.mark.parametrize("path", PAGED)
@pytest.mark.parametrize(
    "outermost",
    [
        ("A" * 11, "A" * 22, "0.threads.1", "x.1"),
        ("f" + "_" * 9 + "8", "_" * 21 + "w", f"{'9' * 17}.x.{'9' * 19}", f"threads.{'9' * 19}~x.{'9' * 19}"),
    ],
    ids=["least", "largest"],
)
def test_a_list_goes_on_from_wherever_its_cursors_can_point(
    path: str, outermost: tuple[str, ...], running: Running, described: dict[str, Any]
) -> None:
    [pattern] = [
        each["schema"]["anyOf"][0]["pattern"]
        for each in described["paths"][path]["get"]["parameters"]
        if each["name"] == "cursor"
    ]
    [cursor] = [each for each in outermost if re.fullmatch(pattern, each)]
    there = {"who": "A", "name": "a", "lane": "shopee"}
    own = re.sub(r"\{(\w+)\}", lambda found: there.get(found[1], "1"), path)
    asked = Request(f"{running.url}{own}?cursor={cursor}", headers={"Authorization": f"Bearer {running.token}"})
    with urlopen(asked, timeout=PATIENCE) as answer:
        assert "next" in json.load(answer)
