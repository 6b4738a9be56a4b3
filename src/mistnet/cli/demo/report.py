"""What the demo tells at its end: what was collected, whether that is all there is, and what to type next."""

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.app import App
from mistnet.cli.output import Block, Grid
from mistnet.operations.overview import Overview
from mistnet.operations.spend import By, CallLedger
from mistnet.social.coverage.store import Coverage
from mistnet.social.jobs import args
from mistnet.social.store.tracking import TrackingStore
from mistnet.sources.x.client import CREDITS_PER_DOLLAR, shown_dollars

if TYPE_CHECKING:
    from mistnet.cli.demo.world import DemoWorld


FILE: Final = "demo.db"
COMMANDS: Final = (
    "status --watch",
    "coverage",
    "search coin",
    "products list",
    "spend",
    "sources",
    "jobs list",
    "export posts --format csv",
    "serve",
)
_EVER: Final = timedelta(days=1)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which world, and whether its database is kept."""

    seed: int
    size: str
    faults: str
    keep: Path | None


class DemoReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo collected, and whether the world agrees that this is all there is."""

    seed: int
    size: str
    faults: str
    accounts: Mapping[str, int]
    posts: int
    native_retweets: int
    threads_walked: int
    users: int
    gone_upstream: Mapping[str, int]
    products: int
    complete: bool
    disagreements: Sequence[str]
    calls: int
    failed_calls: int
    credits: int
    dollars: float
    seconds: float
    dashboard: str
    database_url: str | None
    next: Sequence[str]


async def report_of(app: App, world: "DemoWorld", choice: Choice, seconds: float, *, dashboard: str) -> DemoReport:
    disagreements = await world.disagreements(app)
    suggestions = await TrackingStore(app.database, app.job_writer).suggestions(live_only=False)
    accounts = Counter(str(each.state) for each in await Coverage(app.database).accounts())
    accounts["refused"] = sum(each.outcome == "refused" for each in suggestions)
    done = await app.inspector.finished(since=app.database.clock.now() - _EVER)
    totals = await Overview(app.database).totals()
    spent = await CallLedger(app.database).spent(By.SOURCE)
    cost = sum(each.credits for each in spent)
    url = app.database.shown_url if choice.keep else None
    return DemoReport(
        seed=choice.seed,
        size=choice.size,
        faults=choice.faults,
        accounts=accounts,
        posts=totals.posts,
        native_retweets=totals.native_retweets,
        threads_walked=done.get(args.WALK, 0),
        users=totals.users,
        gone_upstream={"posts": totals.gone_posts, "users": totals.gone_users},
        products=totals.products,
        complete=not disagreements,
        disagreements=disagreements,
        calls=sum(each.calls for each in spent),
        failed_calls=sum(each.failures for each in spent),
        credits=cost,
        dollars=cost / CREDITS_PER_DOLLAR,
        seconds=round(seconds, 1),
        dashboard=dashboard,
        database_url=url,
        next=commands(url),
    )


def blocks(report: DemoReport) -> list[Block]:
    coverage = "complete: everything the world shows is stored" if report.complete else "; ".join(report.disagreements)
    gone = report.gone_upstream
    rows = [
        ("world", f"seed {report.seed}, {report.size}, faults: {report.faults}"),
        ("accounts", ", ".join(f"{count} {state}" for state, count in report.accounts.items())),
        ("posts", f"{report.posts:,}, of which {report.native_retweets:,} native retweets"),
        ("threads walked", f"{report.threads_walked:,}"),
        ("users", f"{report.users:,}"),
        ("gone upstream", f"{gone['posts']:,} posts and {gone['users']:,} users that others had answered"),
        ("products", f"{report.products:,} that posts link to, with their prices"),
        ("coverage", coverage),
        ("calls", f"{report.calls:,}, of which {report.failed_calls:,} failed"),
        ("spent", f"{report.credits:,} simulated credits ({shown_dollars(report.credits)})"),
        ("time", f"{report.seconds:g} s"),
        ("dashboard", f"{report.dashboard} while it ran; `serve` opens it again"),
    ]
    said = "\n".join(["Look at it:" if report.database_url else "Do it again and look at it:", "", *_indented(report)])
    return [Grid(title="the demo collected a simulated world", columns=("", ""), rows=rows), said]


def _indented(report: DemoReport) -> list[str]:
    return [f"  {line}" for line in report.next]


def commands(url: str | None) -> list[str]:
    """What to type next, the database first; without one, how to keep it."""
    own = own_name()
    first = [f"{own} demo --keep mistnet-demo"] if url is None else []
    kept = url or f"sqlite:///mistnet-demo/{FILE}"
    return [*first, f"export MISTNET_DATABASE_URL={shlex.quote(kept)}", *(f"{own} {each}" for each in COMMANDS)]


def own_name() -> str:
    """What somebody types to run this program: `mistnet` where it is on the path."""
    if shutil.which("mistnet"):
        return "mistnet"
    called = Path(sys.argv[0])
    return str(called) if called.name == "mistnet" else "python -m mistnet"
