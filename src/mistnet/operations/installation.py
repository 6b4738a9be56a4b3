"""What the doctor looks at besides the database: keys, workers, caps, disk, clock, files, tokens."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mistnet.operations.alerts.watch import silence_of
from mistnet.operations.findings import HealthFinding, fail, ok, shown_time, warn
from mistnet.operations.overview import Board
from mistnet.queue.model import GAP_STATES, KindName, Lane
from mistnet.queue.store.inspect import StateCount
from mistnet.settings import settings_file
from mistnet.social.accounts import AccountState

if TYPE_CHECKING:
    from mistnet.app import App
    from mistnet.governor.source import Source


LITTLE_SPACE: Final = 1_000_000_000
NO_SPACE: Final = 100_000_000
"""In bytes. A database that cannot write stops everything, and its journal needs room too."""

_SKEW: Final = timedelta(seconds=5)
_TOKEN_WARNING: Final = timedelta(days=7)


async def look_over(app: App) -> Sequence[HealthFinding]:
    """Needs a database that answers and has its tables."""
    now = app.database.clock.now()
    counts = await app.inspector.counts(now=now)
    paused = {each.kind for each in await app.inspector.paused()}
    seen = [each for each in await app.inspector.workers() if now - each.seen_at < silence_of(app.settings)]
    due = sum(count.due for count in counts if count.kind not in paused)
    social = [source for source in app.sources.values() if source.platform]
    return [
        *[await _about_key(app, source, counts) for source in social],
        worker(due=due, there=len(seen)),
        *[await _about_budget(app, source) for source in app.sources.values() if source.costs],
        *_about_files(app),
        *([clock(await app.inspector.latest_at(), now)] if app.database.product == "sqlite" else []),
        *_about_token(app, now),
    ]


async def _about_key(app: App, source: Source, counts: Sequence[StateCount]) -> HealthFinding:
    kinds = [name for name, rules in app.kinds.rules.items() if Lane(source.name) in rules.lanes]
    tracked = await Board(app.database).account_states()
    followed = any(number for state, number in tracked.items() if state != AccountState.UNTRACKED)
    is_used = (source.client is not None and followed) or _is_live(counts, kinds)
    return key(source.name, source.setup, used=is_used, configured=bool(source.keys))


def _is_live(counts: Sequence[StateCount], kinds: Collection[KindName]) -> bool:
    return any(count.kind in kinds and count.state not in GAP_STATES for count in counts)


async def _about_budget(app: App, source: Source) -> HealthFinding:
    shared = await app.sources.state(source.name)
    caps = [shared.day_cap, shared.month_cap, source.limits.day_credits, source.limits.month_credits]
    return budget(source.name, caps, configured=bool(source.keys))


def _about_files(app: App) -> Iterator[HealthFinding]:
    database = app.database.file
    if database is not None:
        yield disk(database.parent, free=shutil.disk_usage(database.parent).free)
    yield files([each for each in (database, settings_file(), app.settings.threads_token_file) if each is not None])


def _about_token(app: App, now: datetime) -> Iterator[HealthFinding]:
    standing = app.feeds.token
    if standing.state.configured:
        yield token(standing.state.expires_at, now, refreshed=standing.file is not None)


def key(source: str, setup: str, *, used: bool, configured: bool) -> HealthFinding:
    name = f"key for {source}"
    if configured:
        return ok(name, "configured here")
    if not used:
        return ok(name, "none, and none is needed")
    return warn(name, f"none is configured here, and {source} is used", f"{setup} where workers run")


def worker(*, due: int, there: int) -> HealthFinding:
    jobs = "1 job is due" if due == 1 else f"{due:,} jobs are due"
    if due and not there:
        return warn("worker", f"{jobs} and no worker is there", "start one: `mistnet work` or `mistnet up`")
    workers = "no worker" if not there else "1 worker" if there == 1 else f"{there} workers"
    return ok("worker", f"{workers} there, {jobs if due else 'nothing is due'}")


def budget(source: str, caps: Iterable[int | None], *, configured: bool) -> HealthFinding:
    if not configured:
        return ok("budget", f"without a key for {source}, nothing is spent")
    if any(cap is not None for cap in caps):
        return ok("budget", f"the credits of {source} are capped")
    advice = f"`mistnet sources set {source} --day-credits 200000` caps them at $2 a day, for all machines"
    return warn("budget", f"nothing caps what {source} may cost", advice)


def disk(folder: Path, *, free: int) -> HealthFinding:
    found = f"{free / 1_000_000:,.0f} MB are free in {folder}"
    if free >= LITTLE_SPACE:
        return ok("disk", found)
    advice = "make room, or move the database: nothing can be collected when the disk is full"
    return (fail if free < NO_SPACE else warn)("disk", found, advice)


def clock(latest: datetime | None, now: datetime) -> HealthFinding:
    """One machine has one clock; only what it wrote itself can show that it was set back."""
    if latest is None or latest - now <= _SKEW:
        return ok("clock", "nothing was written in the future")
    advice = "set this machine's clock; until then, due work and leases are late"
    return warn("clock", f"the clock says {shown_time(now)}, and something was written at {shown_time(latest)}", advice)


def token(expires_at: datetime | None, now: datetime, *, refreshed: bool) -> HealthFinding:
    name, renew = "token for threads", "get a new one and set MISTNET_THREADS_TOKEN"
    if expires_at is None:
        return ok(name, "configured; `mistnet feeds token --check` asks until when it is valid")
    if expires_at <= now:
        return fail(name, f"expired at {shown_time(expires_at)}", renew)
    if expires_at - now < _TOKEN_WARNING and not refreshed:
        return warn(name, f"expires at {shown_time(expires_at)}", f"{renew}, or set threads_token_file to refresh it")
    return ok(name, f"valid until {shown_time(expires_at)}")


def files(looked_at: Sequence[Path]) -> HealthFinding:
    return files_found([file for file in looked_at if _is_open(file)])


def files_found(open_ones: Sequence[Path]) -> HealthFinding:
    if not open_ones:
        return ok("files", "no one else on this machine can read them")
    names = " ".join(str(file) for file in open_ones)
    return warn("files", f"others on this machine can read {names}", f"chmod o-rwx {names}")


def _is_open(file: Path) -> bool:
    try:
        folders = [folder.stat().st_mode for folder in file.absolute().parents]
        return is_open_to_others(file.stat().st_mode, folders)
    except OSError:
        return False  # what is not there cannot be read


def is_open_to_others(mode: int, folders: Iterable[int]) -> bool:
    """A file that may be read is still closed where a folder on the way to it is."""
    return bool(mode & (stat.S_IROTH | stat.S_IWOTH)) and all(folder & stat.S_IXOTH for folder in folders)
