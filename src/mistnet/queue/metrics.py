"""What the engine counts, for Prometheus."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from mistnet import __version__

# Times of single statements: a claim takes milliseconds.
_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# From being added to the end: a job may wait for days, for its source or for a budget.
_PATIENT = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800)
# Up to the time limit of a handler.
_LONG = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class _Meters:
    """Meters in the registry of one process. Tests run several processes' parts in one, so none is global."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, meaning, labels, buckets=buckets, registry=self.registry)


class EngineMetrics(_Meters):
    """The meters of one process, in a registry of its own."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.settled = counter("mistnet_jobs", "Jobs settled, by kind and outcome.", "kind", "outcome")
        self.retries = counter("mistnet_job_retries", "Attempts that failed and will be tried again.", "kind")
        self.dead = counter("mistnet_jobs_dead", "Jobs that used up their attempts.", "kind")
        self.lease_losses = counter("mistnet_lease_losses", "Leases a worker lost before it could settle.", "kind")
        self.reclaimed = counter("mistnet_jobs_reclaimed", "Jobs taken back from workers that went silent.", "kind")
        self.claim_seconds = histogram("mistnet_claim_seconds", "How long a claim took.", buckets=_FAST)
        self.settle_seconds = histogram("mistnet_settle_seconds", "How long settling a group took.", buckets=_FAST)
        self.run_seconds = histogram("mistnet_run_seconds", "How long a handler ran.", "kind", buckets=_LONG)
        self.wait_seconds = histogram(
            "mistnet_wait_seconds", "How long a job was due before it was claimed.", "kind", buckets=_LONG
        )
        self.running = gauge("mistnet_jobs_running", "Jobs this process works on.")
        self.depth = gauge("mistnet_queue_depth", "Jobs in the queue.", "kind", "state")
        self.oldest = gauge(
            "mistnet_queue_oldest_seconds",
            "How long the oldest job of a kind and state has been there.",
            "kind",
            "state",
        )
        self.lanes = LaneMetrics(self.registry)
        self.broker = BrokerMetrics(self.registry)
        self.database = DatabaseMetrics(self.registry)
        self.shared = SharedMetrics(self.registry)
        self.parked = gauge("mistnet_jobs_parked", "Jobs held back by a cap.", "kind")
        self.clock_drift = gauge("mistnet_clock_drift_seconds", "How far the clock was off at its last correction.")


class BrokerMetrics(_Meters):
    """The meters of what goes over the broker, by lane."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        counter = self._counter
        self.published = counter("mistnet_broker_published", "Job ids the broker has confirmed.", "lane")
        self.republished = counter(
            "mistnet_broker_republished", "Job ids published again because their message seemed lost.", "lane"
        )
        self.returned = counter("mistnet_broker_returned", "Messages the broker returned or never confirmed.", "lane")
        self.consumed = counter("mistnet_broker_consumed", "Messages that reached this process.", "lane")
        self.acked = counter("mistnet_broker_acked", "Messages this process has done with.", "lane")
        self.rejected = counter("mistnet_broker_rejected", "Unreadable messages, sent to the dead letters.", "lane")
        self.dead_lettered = counter("mistnet_broker_dead_lettered", "Dead letters the broker has confirmed.", "lane")


class DatabaseMetrics(_Meters):
    """The meters of the database itself. What it does not tell is not a number."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        gauge = self._gauge
        self.up = gauge("mistnet_database_up", "1 if the database answers and has the tables of this version, else 0.")
        self.checked_at = gauge("mistnet_database_check_timestamp_seconds", "When the database was last looked at.")
        self.writable = gauge("mistnet_database_writable", "1 if the last test write was kept, else 0.")
        self.read_only = gauge("mistnet_database_read_only", "1 if the server calls itself read-only or a standby.")
        self.write_seconds = gauge("mistnet_database_write_seconds", "How long the last test write took.")
        self.size = gauge("mistnet_database_size_bytes", "How large the database is.")
        self.free = gauge("mistnet_database_free_bytes", "Free disk space where a SQLite file is kept.")
        self.connections = gauge("mistnet_database_connections", "Connections a PostgreSQL server has open, of all.")
        self.most_connections = gauge("mistnet_database_connections_limit", "Connections it allows without privilege.")
        self.stalled = gauge(
            "mistnet_queue_stalled_seconds", "How long jobs were due while none was begun or settled; 0 if none is due."
        )
        for each in vars(self).values():
            if isinstance(each, Gauge):
                # 0 would be a value, and a wrong one, until the first check.
                each.set(math.nan)


class SharedMetrics(_Meters):
    """The meters of what all machines share: sources, their budgets and open alerts; and of this version."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        gauge = self._gauge
        self.paused = gauge("mistnet_source_paused", "1 while a source is paused, else 0.", "source")
        self.breaker = gauge("mistnet_source_breaker_open", "1 while a source's breaker is open, else 0.", "source")
        self.last_success = gauge(
            "mistnet_source_last_success_timestamp_seconds", "When a call of a source last succeeded.", "source"
        )
        self.credits_left = gauge(
            "mistnet_credits_left", "Credits that may still be spent in the day or month (UTC).", "source", "span"
        )
        self.alerts = gauge("mistnet_alerts_open", "Open alerts that are not accepted.", "severity")
        gauge("mistnet_build_info", "Always 1; the label is the version.", "version").labels(__version__).set(1)


class LaneMetrics(_Meters):
    """The meters of lanes: what came of their jobs, how long those took from first to last, what is left."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.jobs = self._counter("mistnet_lane_jobs", "Attempts at jobs, by lane and outcome.", "lane", "outcome")
        self.finish_seconds = self._histogram(
            "mistnet_lane_finish_seconds",
            "How long a job took from being added to its end; of a crawl, from its link being seen.",
            "lane",
            buckets=_PATIENT,
        )
        self.depth = self._gauge("mistnet_lane_depth", "Live jobs, by lane and state.", "lane", "state")
        self.dead_letters = self._gauge(
            "mistnet_dead_letters", "Jobs that ended without their result.", "lane", "state"
        )


class SourceMetrics(_Meters):
    """The meters of the sources, in the registry of their process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        labels = ("source", "endpoint")
        self.calls = self._counter("mistnet_calls", "Calls to sources, by what came of them.", *labels, "status")
        self.credits = self._counter("mistnet_credits", "Credits spent on calls.", *labels)
        self.call_seconds = self._histogram("mistnet_call_seconds", "How long a call took.", *labels, buckets=_LONG)
        self.refusals = self._counter(
            "mistnet_source_refusals", "Keys refused for good: wrong, or out of credits.", "source"
        )
        self._of: dict[tuple[str, str, int | None], tuple[Counter, Counter, Histogram]] = {}

    def called(self, source: str, endpoint: str, status: int | None, cost: int, seconds: float) -> None:
        key = (source, endpoint, status)
        # Finding a meter by its labels costs more than counting.
        if key not in self._of:
            self._of[key] = (
                self.calls.labels(source, endpoint, str(status or "none")),
                self.credits.labels(source, endpoint),
                self.call_seconds.labels(source, endpoint),
            )
        calls, credits_spent, call_seconds = self._of[key]
        calls.inc()
        credits_spent.inc(cost)
        call_seconds.observe(seconds)
