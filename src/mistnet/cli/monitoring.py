"""How the views for monitoring are shown."""

from collections.abc import Sequence
from datetime import timedelta

from mistnet.cli.output import Grid, at, last_line, span
from mistnet.store.monitoring import RecentJob, SourceHealth, StuckJob


def health_grid(found: Sequence[SourceHealth]) -> Grid:
    return Grid(
        title="sources",
        columns=("source", "state", "failures in a row", "last success", "last failure", "until", "why"),
        rows=[
            (
                each.name,
                each.state,
                str(each.failure_streak),
                at(each.last_success_at),
                at(each.last_failure_at),
                at(each.paused_until),
                each.pause_reason or (last_line(each.last_failure) if each.failure_streak else ""),
            )
            for each in found
        ],
    )


def stuck_grid(found: Sequence[StuckJob]) -> Grid:
    return Grid(
        title="stuck jobs: their leases ran out",
        columns=("job", "kind", "lane", "held by", "last sign of life", "silent for"),
        rows=[
            (
                str(each.id),
                each.kind,
                each.lane,
                each.locked_by,
                at(each.heartbeat_at),
                span(timedelta(seconds=each.seconds_since_heartbeat)),
            )
            for each in found
        ],
    )


def failures_grid(found: Sequence[RecentJob]) -> Grid:
    return Grid(
        title="jobs that ended without their result, newest first",
        columns=("job", "kind", "key", "lane", "status", "attempts", "ended", "why"),
        rows=[
            (
                str(each.id),
                each.kind,
                each.key or "",
                each.lane,
                each.status,
                str(each.attempts),
                at(each.completed_at),
                last_line(each.error_message),
            )
            for each in found
        ],
    )
