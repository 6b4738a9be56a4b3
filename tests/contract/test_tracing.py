"""Traces of real work: a span per job with its calls below it, sent to a real receiver, and nothing when off."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from loguru import logger
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from mistnet.app import App
from mistnet.kit.errors import SettingsError
from mistnet.queue.kinds import batched, single
from mistnet.queue.model import Done, Fail, Job, JobClass, KindName, Outcome, Retry
from mistnet.queue.opentelemetry import Tracing, tracing_to
from mistnet.queue.plugins import Plugin
from mistnet.queue.ports import untraced
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.settings import Settings
from mistnet.sim.world import World
from mistnet.social.jobs import args
from tests.databases import make_app
from tests.support import Number, new
from tests.worlds import SMALLEST, Oracle, WorldTransport, service_of

pytestmark = pytest.mark.common_sql

SPOILT = "Traceback\n  File x\nValueError: token=hunter2-secret-key in the error"


def settings_for(url: str, **about: Any) -> Settings:
    quick = {"second_look_seconds": 0.05, "batch_fill_seconds": 0.05, "backoff_base_seconds": 0.05, "max_attempts": 2}
    given = {"database_url": url, "x_api_key": "hunter2-secret-key", "x_rate_per_minute": 60_000, **quick, **about}
    return Settings.model_validate(given)


@asynccontextmanager
async def traced(app: App, exporter: InMemorySpanExporter) -> AsyncIterator[None]:
    """Runs all there is to do, and sends what was seen."""
    app._tracing = Tracing(exporter, instance="ann")
    async with app._tracing.opened(), app.worker(until_idle=True) as worker:
        await worker.run()
        yield


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def quick(job: Job[Number]) -> Outcome:
    outcomes: dict[int, Outcome] = {0: Done(), 1: Retry(SPOILT), 2: Fail(SPOILT)}
    return outcomes[job.args.n]


async def many(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
    return [Done() if job.args.n else Fail("zero") for job in jobs]


KINDS = [
    single("quick", quick, Number, job_class=JobClass.WALK, lanes=["x"]),
    batched("many", many, Number, batch=5, job_class=JobClass.WALK, lanes=["x"]),
]


async def test_a_job_is_a_span_with_its_outcome_and_without_secrets(url: str) -> None:
    exporter = InMemorySpanExporter()
    app = make_app(settings_for(url, max_attempts=1), plugins=[Plugin(kinds=KINDS)])
    try:
        await app.enqueue([new("quick", key=f"k{n}", n=n) for n in range(3)])
        async with traced(app, exporter):
            pass
    finally:
        await app.database.close()
    spans = {attributes(span)["mistnet.key"]: span for span in named(exporter.get_finished_spans(), "job quick")}
    assert {key: attributes(span)["mistnet.outcome"] for key, span in spans.items()} == {
        "k0": "done",
        "k1": "retry",
        "k2": "fail",
    }
    assert [spans[key].status.status_code for key in ("k0", "k1", "k2")] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
        StatusCode.ERROR,
    ]
    about = attributes(spans["k0"])
    assert (about["mistnet.kind"], about["mistnet.lane"], about["mistnet.attempt"]) == ("quick", "x", 1)
    assert "hunter2" not in "".join(span.to_json() for span in exporter.get_finished_spans())
    assert dict(spans["k0"].resource.attributes)["service.name"] == "mistnet"


async def test_a_batch_links_its_members(url: str) -> None:
    exporter = InMemorySpanExporter()
    app = make_app(settings_for(url), plugins=[Plugin(kinds=KINDS)])
    try:
        await app.enqueue([new("many", key=f"k{n}", n=n) for n in range(5)])
        async with traced(app, exporter):
            pass
    finally:
        await app.database.close()
    (batch,) = named(exporter.get_finished_spans(), "batch many")
    members = named(exporter.get_finished_spans(), "job many")
    assert {link.context.span_id for link in batch.links} == {span.context.span_id for span in members if span.context}
    assert len(members) == 5
    assert attributes(batch)["mistnet.batch.size"] == 5
    assert sorted(attributes(span)["mistnet.outcome"] for span in members) == ["done"] * 4 + ["fail"]


async def test_calls_upstream_stand_below_the_job_that_made_them(sqlite_url: str) -> None:
    exporter, world = InMemorySpanExporter(), World(5, SMALLEST)
    app = make_app(settings_for(sqlite_url, x_api_key="sim-key"), transports={"x": WorldTransport(service_of(world))})
    try:
        await app.enqueue([args.suggestion(Oracle(world).handles[0])])
        async with traced(app, exporter):
            pass
        async with app.database.read() as connection:
            ledger = (await connection.exec_driver_sql("SELECT endpoint, credits, items FROM calls")).all()
    finally:
        await app.database.close()
    spans = exporter.get_finished_spans()
    calls = [span for span in spans if span.name.startswith("x ")]
    parents = {span.context.span_id: span for span in spans if span.context}
    told = [
        (attributes(each)["mistnet.endpoint"], attributes(each)["mistnet.credits"], attributes(each)["mistnet.items"])
        for each in calls
    ]
    assert sorted(told) == sorted(tuple(row) for row in ledger)
    for call in calls:
        assert call.parent is not None
        above = parents[call.parent.span_id]
        assert above.name.startswith(("job ", "batch "))
        assert above.start_time is not None
        assert call.start_time is not None
        assert call.start_time >= above.start_time - 5_000_000
    assert {attributes(each)["http.response.status_code"] for each in calls} == {200}
    assert "sim-key" not in "".join(span.to_json() for span in spans)


async def test_spans_reach_a_collector_over_http(sqlite_url: str) -> None:
    got: list[tuple[str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        unzipped = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        got.append((request.path, unzipped))
        return web.Response(body=b"", content_type="application/x-protobuf")

    collector = web.Application()
    collector.router.add_post("/{tail:.*}", take)
    runner = web.AppRunner(collector)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    app = make_app(settings_for(sqlite_url, otel_endpoint=f"http://127.0.0.1:{port}"), plugins=[Plugin(kinds=KINDS)])
    try:
        await app.enqueue([new("quick", key="over the wire")])
        async with app.worker(until_idle=True) as worker:
            await worker.run()
    finally:
        await app.database.close()
        await runner.cleanup()
    assert {path for path, _ in got} == {"/v1/traces"}
    sent = ExportTraceServiceRequest()
    sent.ParseFromString(got[0][1])
    (span,) = sent.resource_spans[0].scope_spans[0].spans
    assert span.name == "job quick"
    assert {each.key: each.value.string_value for each in span.attributes}["mistnet.key"] == "over the wire"


async def test_a_collector_that_is_away_does_not_hold_the_work_up(
    sqlite_url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    logger.remove()  # streams that earlier tests have closed
    app = make_app(settings_for(sqlite_url, otel_endpoint="http://127.0.0.1:9"), plugins=[Plugin(kinds=KINDS)])
    try:
        await app.enqueue([new("quick", key="a")])
        async with app.worker(until_idle=True) as worker:
            await worker.run()
        assert worker.settled_count == 1
    finally:
        await app.database.close()
    assert "Traceback" not in capfd.readouterr().err


def test_nothing_of_opentelemetry_is_loaded_unless_it_is_asked_for() -> None:
    asked = "import sys, mistnet.app; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


async def test_without_an_endpoint_the_worker_is_untraced(sqlite_url: str) -> None:
    app = make_app(settings_for(sqlite_url))
    try:
        tools = app.tools(LocalWakeups())
        assert tools.trace is untraced
        assert untraced(app.kinds[KindName("walk")], []) is untraced(app.kinds[KindName("walk")], [])
    finally:
        await app.database.close()


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://"])
def test_an_endpoint_that_cannot_be_one_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="otel_endpoint"):
        tracing_to(endpoint, instance="ann")
