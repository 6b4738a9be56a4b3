"""OpenTelemetry traces, if enabled: a span per job with a child span for each upstream call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from loguru import logger

from mistnet import __version__
from mistnet.kit.errors import SettingsError
from mistnet.kit.text import last_line
from mistnet.queue.kinds import Kind
from mistnet.queue.model import Fail, Lease, Outcome, Retry, Snooze
from mistnet.queue.ports import Tell

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from mistnet.governor.model import CallRecord


_SECOND: Final = 1_000_000_000
_FLUSH_SECONDS: Final = 5


class Tracing:
    """Makes and exports spans. OpenTelemetry is imported when the first of these is made."""

    def __init__(self, exporter: SpanExporter, *, instance: str) -> None:
        from opentelemetry import trace  # noqa: PLC0415 (an extra)
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        about = {"service.name": "mistnet", "service.version": __version__, "service.instance.id": instance}
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("mistnet", __version__)
        self._otel = trace

    @contextmanager
    def jobs(self, kind: Kind, batch: Sequence[Lease]) -> Iterator[Tell]:
        """One job is one span. A batch is a span of its own that links to the spans of its members."""
        members = [
            self._tracer.start_span(
                f"job {kind.name}",
                attributes={
                    "mistnet.job.id": str(lease.id),
                    "mistnet.kind": lease.kind,
                    "mistnet.key": lease.key or "",
                    "mistnet.lane": lease.lane,
                    "mistnet.attempt": lease.attempts + 1,
                    "mistnet.worker": lease.worker,
                },
            )
            for lease in batch
        ]
        whole = members[0]
        if len(members) > 1:
            links = [self._otel.Link(span.get_span_context()) for span in members]
            size: dict[str, Any] = {"mistnet.kind": kind.name, "mistnet.batch.size": len(members)}
            whole = self._tracer.start_span(f"batch {kind.name}", links=links, attributes=size)
        outcomes: list[Outcome] = []
        try:
            with self._otel.use_span(whole, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                yield outcomes.extend
        finally:
            for place, span in enumerate(members):
                self._end(span, outcomes[place] if outcomes else None)
            if whole is not members[0]:
                whole.end()

    def _end(self, span: Span, outcome: Outcome | None) -> None:
        """No outcome means that the handler was cancelled: its lease was lost, or the worker ends."""
        span.set_attribute("mistnet.outcome", type(outcome).__name__.lower() if outcome else "stopped")
        match outcome:
            case Retry(error=error) | Fail(error=error):
                self._fail(span, error)
            case Snooze(reason=reason):
                span.set_attribute("mistnet.reason", reason)
            case _:
                pass
        span.end()

    def called(self, record: CallRecord) -> None:
        """A finished call, as a child of its job's span."""
        end = time.time_ns()
        about: dict[str, Any] = {
            "mistnet.source": record.source,
            "mistnet.endpoint": record.endpoint,
            "mistnet.items": record.items,
            "mistnet.credits": record.credits,
        }
        if record.status is not None:
            about["http.response.status_code"] = record.status
        span = self._tracer.start_span(
            f"{record.source} {record.endpoint}",
            kind=self._otel.SpanKind.CLIENT,
            attributes=about,
            start_time=end - int(record.seconds * _SECOND),
        )
        if record.error:
            self._fail(span, record.error.partition(":")[0])
        span.end(end)

    def _fail(self, span: Span, error: str) -> None:
        span.set_status(self._otel.StatusCode.ERROR, last_line(error)[:300])

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Send the remaining spans, as long as the receiver answers."""
        try:
            yield
        finally:
            await asyncio.to_thread(self._provider.force_flush, _FLUSH_SECONDS * 1000)
            await asyncio.to_thread(self._provider.shutdown)


def tracing_to(endpoint: str, *, instance: str) -> Tracing:
    """Over HTTP to a collector. The usual path is added to a bare address."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingsError("otel_endpoint", "settings", "must begin with http:// or https://")
    whole = endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    log = logging.getLogger("opentelemetry")
    log.handlers, log.propagate = [_ExporterLogHandler()], False
    return Tracing(OTLPSpanExporter(endpoint=whole), instance=instance)


class _ExporterLogHandler(logging.Handler):
    """An unreachable collector does not concern the jobs: log it at DEBUG, through our own log."""

    def emit(self, record: logging.LogRecord) -> None:
        logger.debug("tracing: {problem}", problem=record.getMessage())
