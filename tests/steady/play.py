"""Run `mistnet up` in a simulated world for hours, look at its pages, and measure it every minute."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import asyncpg

from tests.retention import RETENTION
from tests.services.postgres import PostgresCluster
from tests.simulated import list_handles
from tests.steady.judging import Judgement, Limit, Sample, judge, table_of

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ("/", "/jobs", "/accounts", "/sources", "/metrics", "/api/jobs", "/api/accounts", "/health")
TABLES: Final = tuple(sorted(RETENTION))
ROWS: Final = Limit(amount=200, share=0.25)
LIMITS: Final[Mapping[str, Limit]] = {
    "memory (MB)": Limit(amount=8, per_hour=0.5),
    "descriptors": Limit(amount=10),
    "connections": Limit(amount=5),
    "WAL (MB)": Limit(amount=40),
    **{f"rows of {name}": ROWS for name, each in RETENTION.items() if each.setting},
}
HOURS_TO_PRUNE: Final = 6.0
"""Rows are pruned once an hour: a shorter run cannot tell whether they are."""
KEY: Final = "steady-key"
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0
SMALL_WAL: Final = ("max_wal_size=64MB", "min_wal_size=32MB", "checkpoint_timeout=60s")
"""WAL is recycled at a size a short run reaches too."""
LEAKING: Final = """
import sys, threading, time
kept = []
def leak():
    while True:
        kept.append(bytearray({bytes_a_second}))
        time.sleep(1)
threading.Thread(target=leak, daemon=True).start()
from mistnet.__main__ import main
main()
"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a run is, how often it is measured, and how fast the world's time goes."""

    hours: float
    sample_seconds: float = 60.0
    speed: float = 60.0
    leak_megabytes_a_minute: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """Rows are kept for an hour at most, so that a day shows whether they are pruned."""
        days = str(min(max(self.hours / 12, 0.1), 1.0) / 24)
        return {
            "MISTNET_X_API_KEY": KEY,
            "MISTNET_X_RATE_PER_MINUTE": "100000",
            "MISTNET_HISTORY_DAYS": days,
            "MISTNET_CALLS_DAYS": days,
            "MISTNET_CRAWLS_DAYS": days,
            "MISTNET_RUN_HOURS": "1",
            "MISTNET_RECLAIM_SECONDS": "10",
            "MISTNET_BATCH_FILL_SECONDS": "2",
            "MISTNET_SECOND_LOOK_SECONDS": "2",
            "MISTNET_GROUPS__DEFAULT__EVERY_SECONDS": "10",
            "MISTNET_LOG_LEVEL": "WARNING",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a run came to. `problem` says why it could not go on to its end."""

    name: str
    judgements: Sequence[Judgement]
    pages: int
    problem: str | None = None

    @property
    def passed(self) -> bool:
        return self.problem is None and all(each.flat for each in self.judgements)

    def report(self) -> str:
        lines = [f"steady on {self.name}, {self.pages:,} pages loaded", table_of(self.judgements)]
        return "\n".join([*lines, *([f"problem: {self.problem}"] if self.problem else [])])


def limit_of(measure: str, *, hours: float) -> Limit | None:
    if measure.startswith("rows of ") and hours < HOURS_TO_PRUNE:
        return None
    return LIMITS.get(measure)


def process_measures(process: int | str, *, database: Path | None = None) -> dict[str, float]:
    """What the kernel says of a process. Connections to a SQLite file are its open files."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    (resident,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    open_files = [_target(each) for each in Path(f"/proc/{process}/fd").iterdir()]
    found = {"memory (MB)": int(resident) / 1_024, "descriptors": float(len(open_files))}
    if database is not None:
        found["connections"] = float(open_files.count(str(database)))
    return found


def _target(descriptor: Path) -> str:
    with contextlib.suppress(FileNotFoundError):  # closed since it was listed
        return str(descriptor.readlink())
    return ""


class SqliteMeter:
    """Measures a SQLite file: its write-ahead log, and the rows of its tables."""

    def __init__(self, file: Path) -> None:
        self.name, self.url, self._file = "SQLite", f"sqlite:///{file}", file

    def measure(self, process: int) -> dict[str, float]:
        log = self._file.with_name(f"{self._file.name}-wal")
        found = process_measures(process, database=self._file)
        found["WAL (MB)"] = log.stat().st_size / 2**20 if log.exists() else 0.0
        with closing(sqlite3.connect(self._file, timeout=60)) as connection:
            counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}
        return {**found, **{f"rows of {name}": float(count) for name, count in counts.items()}}


class PostgresMeter:
    """Measures a PostgreSQL server: its connections, its write-ahead log, and the rows of its tables."""

    def __init__(self, cluster: PostgresCluster) -> None:
        self.name, self.url = "PostgreSQL", cluster.dsn()

    def measure(self, process: int) -> dict[str, float]:
        return {**process_measures(process), **asyncio.run(self._ask())}

    async def _ask(self) -> dict[str, float]:
        connection = await asyncpg.connect(self.url)
        try:
            found = {
                "connections": await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                ),
                "WAL (MB)": await connection.fetchval("SELECT sum(size) / 1048576 FROM pg_ls_waldir()"),
            }
            for name in TABLES:
                found[f"rows of {name}"] = await connection.fetchval(f"SELECT count(*) FROM {name}")
        finally:
            await connection.close()
        return {name: float(value) for name, value in found.items()}


Meter = SqliteMeter | PostgresMeter


@contextmanager
def on_sqlite(folder: Path) -> Iterator[Meter]:
    yield SqliteMeter(folder / "steady.db")


@contextmanager
def on_postgresql(_folder: Path) -> Iterator[Meter]:
    with PostgresCluster(settings=SMALL_WAL) as cluster:
        yield PostgresMeter(cluster)


DATABASES: Final[Mapping[str, Callable[[Path], contextlib.AbstractContextManager[Meter]]]] = {
    "sqlite": on_sqlite,
    "postgresql": on_postgresql,
}


class Service:
    """`mistnet up` and the world it collects, each a process of its own."""

    def __init__(self, plan: Plan, url: str, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}
        self._environment = {**inherited, **plan.environment, "MISTNET_DATABASE_URL": url}
        self._log = folder / "service.log"

    @contextmanager
    def running(self) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """The process that is measured, and its address."""
        sim = ["sim", "serve", "--json", "--size", "tiny", "--tier", "unlimited", "--key", KEY, "--port", "0"]
        with ExitStack() as stack:
            _, world = stack.enter_context(self._started("sim", [*sim, "--speed", str(self._plan.speed)]))
            self._environment["MISTNET_X_BASE_URL"] = world
            self._run("db", "migrate")
            self._run("suggest", *list_handles(world))
            yield stack.enter_context(self._started("up", ["up", "--json", "--port", "0"]))

    @contextmanager
    def _started(self, name: str, arguments: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        out = self._folder / f"{name}.out"
        with out.open("wb") as said, self._log.open("ab") as log:
            process = subprocess.Popen(
                [*self._program(name), *arguments], cwd=self._folder, env=self._environment, stdout=said, stderr=log
            )
        try:
            yield process, self._address(process, out)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)

    def _program(self, name: str) -> list[str]:
        leak = self._plan.leak_megabytes_a_minute
        if name == "up" and leak:
            return [sys.executable, "-c", LEAKING.format(bytes_a_second=int(leak * 2**20 / 60))]
        return [sys.executable, "-m", "mistnet"]

    def _address(self, process: subprocess.Popen[bytes], out: Path) -> str:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(ValueError):
                return str(json.loads(out.read_text(encoding="utf-8"))["url"])
            time.sleep(0.1)
        raise RuntimeError(f"it did not start within {START_SECONDS:g} s:\n{self.said}")

    def _run(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "mistnet", *arguments]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"mistnet {' '.join(arguments)} failed:\n{done.stderr}")

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2_000:]


def play(plan: Plan, meter: Meter, folder: Path, *, note: Callable[[str], None]) -> Verdict:
    """Measures until the time is up, or until the process ends or a page cannot be loaded."""
    samples: list[Sample] = []
    pages, problem = 0, None
    service = Service(plan, meter.url, folder)
    with service.running() as (process, address), (folder / "samples.jsonl").open("w", encoding="utf-8") as kept:
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < plan.hours * 3_600:
            try:
                pages += load_pages(address, until=begun + (len(samples) + 1) * plan.sample_seconds)
                sample = Sample(seconds=now, values=meter.measure(process.pid))
            except (URLError, OSError) as error:
                problem = f"after {now:,.0f} s: {error}; exit code {process.poll()}\n{service.said}"
                break
            samples.append(sample)
            kept.write(json.dumps({"seconds": round(now, 1), **sample.values}) + "\n")
            kept.flush()
            note(f"{meter.name}, {now / 3_600:.2f} h: {sample.values['memory (MB)']:.1f} MB")
    names = list(dict.fromkeys(name for each in samples for name, value in each.values.items() if value))
    judgements = [judge(name, samples, limit_of(name, hours=plan.hours)) for name in names]
    return Verdict(name=meter.name, judgements=judgements, pages=pages, problem=problem)


def load_pages(address: str, *, until: float) -> int:
    """Load every page in turn, two a second, as a watching user does."""
    loaded = 0
    while True:
        for path in PAGES:
            with urlopen(f"{address}{path}", timeout=60) as answer:
                answer.read()
            loaded += 1
            if time.monotonic() >= until:
                return loaded
            time.sleep(0.5)
