"""What the engine counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
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
        self.parked = Gauge("mistnet_jobs_parked", "Jobs held back by a cap.", ["kind"], registry=self.registry)
        self.clock_drift = Gauge(
            "mistnet_clock_drift_seconds", "How far the clock was off at its last correction.", registry=self.registry
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

    def called(self, source: str, endpoint: str, status: int | None, cost: int, seconds: float) -> None:
        self.calls.labels(source, endpoint, str(status or "none")).inc()
        self.credits.labels(source, endpoint).inc(cost)
        self.call_seconds.labels(source, endpoint).observe(seconds)
