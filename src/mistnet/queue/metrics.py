"""What the engine counts, for Prometheus."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_PATIENT = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800)
_LONG = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class EngineMetrics:
    """The meters of one process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.settled = Counter(
            "mistnet_jobs", "Jobs settled, by kind and outcome.", ["kind", "outcome"], registry=self.registry
        )
        self.retries = Counter(
            "mistnet_job_retries", "Attempts that failed and will be tried again.", ["kind"], registry=self.registry
        )
        self.dead = Counter("mistnet_jobs_dead", "Jobs that used up their attempts.", ["kind"], registry=self.registry)
        self.lease_losses = Counter(
            "mistnet_lease_losses", "Leases a worker lost before it could settle.", ["kind"], registry=self.registry
        )
        self.reclaimed = Counter(
            "mistnet_jobs_reclaimed", "Jobs taken back from workers that went silent.", ["kind"], registry=self.registry
        )
        self.claim_seconds = Histogram(
            "mistnet_claim_seconds", "How long a claim took.", buckets=_FAST, registry=self.registry
        )
        self.settle_seconds = Histogram(
            "mistnet_settle_seconds", "How long settling a group took.", buckets=_FAST, registry=self.registry
        )
        self.run_seconds = Histogram(
            "mistnet_run_seconds", "How long a handler ran.", ["kind"], buckets=_LONG, registry=self.registry
        )
        self.wait_seconds = Histogram(
            "mistnet_wait_seconds",
            "How long a job was due before it was claimed.",
            ["kind"],
            buckets=_LONG,
            registry=self.registry,
        )
        self.running = Gauge("mistnet_jobs_running", "Jobs this process works on.", registry=self.registry)
        self.depth = Gauge("mistnet_queue_depth", "Jobs in the queue.", ["kind", "state"], registry=self.registry)
        self.oldest = Gauge(
            "mistnet_queue_oldest_seconds",
            "How long the oldest job of a kind and state has been there.",
            ["kind", "state"],
            registry=self.registry,
        )
        self.lanes = LaneMetrics(self.registry)
        self.broker = BrokerMetrics(self.registry)
        self.database = DatabaseMetrics(self.registry)
        self.parked = Gauge("mistnet_jobs_parked", "Jobs held back by a cap.", ["kind"], registry=self.registry)
        self.clock_drift = Gauge(
            "mistnet_clock_drift_seconds", "How far the clock was off at its last correction.", registry=self.registry
        )


class BrokerMetrics:
    """The meters of what goes over the broker, by lane."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, meaning: str) -> Counter:
            return Counter(name, meaning, ["lane"], registry=registry)

        self.published = counter("mistnet_broker_published", "Job ids the broker has confirmed.")
        self.republished = counter(
            "mistnet_broker_republished", "Job ids published again because their message seemed lost."
        )
        self.returned = counter("mistnet_broker_returned", "Messages the broker returned or never confirmed.")
        self.consumed = counter("mistnet_broker_consumed", "Messages that reached this process.")
        self.acked = counter("mistnet_broker_acked", "Messages this process has done with.")
        self.rejected = counter("mistnet_broker_rejected", "Unreadable messages, sent to the dead letters.")
        self.dead_lettered = counter("mistnet_broker_dead_lettered", "Dead letters the broker has confirmed.")


class DatabaseMetrics:
    """The meters of the database itself. What it does not tell is not a number."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, meaning: str) -> Gauge:
            made = Gauge(name, meaning, registry=registry)
            made.set(math.nan)
            return made

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


class LaneMetrics:
    """The meters of lanes: what came of their jobs, how long those took from first to last, what is left."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Counter(
            "mistnet_lane_jobs", "Attempts at jobs, by lane and outcome.", ["lane", "outcome"], registry=registry
        )
        self.finish_seconds = Histogram(
            "mistnet_lane_finish_seconds",
            "How long a job took from being added to its end; of a crawl, from its link being seen.",
            ["lane"],
            buckets=_PATIENT,
            registry=registry,
        )
        self.depth = Gauge("mistnet_lane_depth", "Live jobs, by lane and state.", ["lane", "state"], registry=registry)
        self.dead_letters = Gauge(
            "mistnet_dead_letters", "Jobs that ended without their result.", ["lane", "state"], registry=registry
        )


class SourceMetrics:
    """The meters of the sources, in the registry of their process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter(
            "mistnet_calls",
            "Calls to sources, by what came of them.",
            ["source", "endpoint", "status"],
            registry=registry,
        )
        self.credits = Counter("mistnet_credits", "Credits spent on calls.", ["source", "endpoint"], registry=registry)
        self.call_seconds = Histogram(
            "mistnet_call_seconds", "How long a call took.", ["source", "endpoint"], buckets=_LONG, registry=registry
        )
        self.refusals = Counter(
            "mistnet_source_refusals", "Keys refused for good: wrong, or out of credits.", ["source"], registry=registry
        )
        self._of: dict[tuple[str, str, int | None], tuple[Counter, Counter, Histogram]] = {}

    def called(self, source: str, endpoint: str, status: int | None, cost: int, seconds: float) -> None:
        key = (source, endpoint, status)
        if key not in self._of:  # finding a meter by its labels costs more than counting
            self._of[key] = (
                self.calls.labels(source, endpoint, str(status or "none")),
                self.credits.labels(source, endpoint),
                self.call_seconds.labels(source, endpoint),
            )
        calls, credits_spent, call_seconds = self._of[key]
        calls.inc()
        credits_spent.inc(cost)
        call_seconds.observe(seconds)
