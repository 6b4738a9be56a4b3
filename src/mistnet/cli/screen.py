"""The screen of `up` and `demo` on a terminal: accounts with their progress, money, jobs, posts as they arrive."""

import asyncio
import textwrap
import time
import unicodedata
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import accumulate, count, zip_longest
from typing import Final

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mistnet.app import App
from mistnet.cli.coverage import StripStyle
from mistnet.cli.status import KindStatus, Status, status_of, summary
from mistnet.kit.errors import DatabaseError
from mistnet.kit.text import printable
from mistnet.operations.overview import Arrival, DashboardStore, Totals
from mistnet.queue.model import GAP_STATES, JobState
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import AccountProgress, StretchState, SweepKind, own_posts, strip
from mistnet.social.jobs import args
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.tracking import REFUSED, Refusals, Suggestion, TrackingStore
from mistnet.sources.x.client import format_dollars

_EVER: Final = timedelta(days=1)
_READ_SECONDS: Final = 0.25
_RATE_SECONDS: Final = 3.0
_LONG_WAIT_SECONDS: Final = 1.5
_REST: Final = 10
_SHOWN_ACCOUNTS, _SHOWN_REFUSALS = 50, 3
_NOTICES: Final = 3
_ARRIVALS, _OF_EACH = 300, 3
COLLECTING: Final = "Looks up profiles, sweeps histories backward, follows replies to their roots, visits linked shops."


class Screen:
    """Reads the database again and again, and draws what it finds."""

    def __init__(self, app: App, *, program: str, address: Callable[[], str], commands: Sequence[str]) -> None:
        self._app = app
        self._program = program
        self._address = address
        self._commands = commands
        self._begun = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque()
        self.title = ""
        self.notices: deque[str] = deque(maxlen=_NOTICES)
        """The latest warnings, which would else be written over the picture."""

    async def run(self) -> None:
        """Draw until cancelled. The last picture stays on the terminal."""
        console = Console()
        last: Sequence[Text] = ()
        try:
            # The alternate screen is drawn whole each time, so that a resize or a wide character leaves no remains.
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    begun = time.monotonic()
                    # Busy: the next read is soon enough.
                    with suppress(DatabaseError):
                        last = draw(await self.read(), width=console.width, height=console.height)
                        live.update(Group(*last), refresh=True)
                    # In a large database the counts take a while: most of the time belongs to the worker.
                    await asyncio.sleep(max(_READ_SECONDS, _REST * (time.monotonic() - begun)))
        finally:
            console.print(Group(*last))

    async def read(self) -> "Picture":
        database = self._app.database
        status = await status_of(database, self._app.settings, recent=_EVER)
        progress, lines = await self.accounts()
        totals = await DashboardStore(database).totals()
        await self.go_on(status, progress)
        # The rate is that of the last seconds.
        now = time.monotonic()
        self._samples.append((now, totals.posts))
        while self._samples[0][0] < now - _RATE_SECONDS:
            self._samples.popleft()
        since, earlier = self._samples[0]
        # At most a few of each author, or one page of posts would fill the screen.
        before: defaultdict[str | None, Iterator[int]] = defaultdict(count)
        arrivals = await DashboardStore(database).arrivals(_ARRIVALS)
        return Picture(
            program=self._program,
            title=self.title or summary(status),
            explained=explain_wait(status) or self.explain(status),
            seconds=now - self._begun,
            posts_per_second=(totals.posts - earlier) / (now - since) if now > since else 0.0,
            now=self.now(),
            totals=totals,
            threads_walked=next((kind.done_last_minute for kind in status.kinds if kind.kind == args.WALK), 0),
            money=await self.money(status),
            accounts=lines,
            more_accounts=max(sum(status.collected.accounts.values()) - len(progress), 0),
            kinds=status.kinds,
            arrivals=[each for each in arrivals if next(before[each.handle]) < _OF_EACH],
            address=self._address(),
            commands=self._commands,
            notices=list(self.notices),
        )

    async def accounts(self) -> "tuple[Sequence[AccountProgress], Sequence[ScreenAccount]]":
        """The accounts that are worked on, those that are looked up, and the latest refusals."""
        store = TrackingStore(self._app.database, self._app.job_writer)
        progress = await Coverage(self._app.database).accounts(await store.liveliest(_SHOWN_ACCOUNTS))
        refused = await Refusals(self._app.database).list(limit=_SHOWN_REFUSALS)
        return progress, [
            *(suggestion_line(each) for each in (await store.suggestions())[:_SHOWN_ACCOUNTS]),
            *(progress_line(each, each.handle or str(each.user_id)) for each in progress),
            *(ScreenAccount(handle=each.handle, state=REFUSED, doing=each.reason) for each in refused),
        ]

    async def go_on(self, status: Status, progress: Sequence[AccountProgress]) -> None:
        """What is done between two reads: nothing, but in the demo."""

    def explain(self, status: Status) -> str:
        return "; ".join(status.needs) or COLLECTING

    def now(self) -> datetime:
        return self._app.database.clock.now()

    async def money(self, status: Status) -> str:
        cap = status.spent_today.cap
        return f"{format_dollars(status.spent_today.credits)}{f' of {format_dollars(cap)}' if cap else ''} today"


def explain_wait(status: Status) -> str | None:
    """The reason for the wait, if no job is due or running."""
    if not status.waits or any(kind.due or kind.states.get(JobState.RUNNING) for kind in status.kinds):
        return None
    first = min(status.waits, key=lambda each: each.next_due_at)
    ahead = (first.next_due_at - status.at).total_seconds()
    return f"Waits {ahead:.0f} s: {first.reason}." if ahead >= _LONG_WAIT_SECONDS else None


_WIDE, _TALL = 110, 30
_QUEUE_WIDTH: Final = 44
_FEWEST_ARRIVALS: Final = 3
_HARD_SPACE: Final = "\N{NO-BREAK SPACE}"
_MOST_ARRIVALS: Final = 12
_OUTCOMES: Final = 3
"""The last accounts of the list show how else a suggestion can end: they are never left out."""
_ORDER: Final = (
    "suggestion",
    "backfill",
    "reposts",
    "walk",
    "hydrate_user",
    "hydrate_post",
    "crawl",
    "catch_up",
    "relook",
)
_UNRELIABLE: Final = {"Cf", "Cn", "Co", "Cs", "Me", "Zl", "Zp"}
_UNRELIABLE_BLOCKS: Final = (
    range(0x0300, 0x0370),  # accents that stand for themselves
    range(0x20D0, 0x2100),
    range(0xFE00, 0xFE30),  # variants of the character before
    range(0x1F1E6, 0x1F200),  # halves of flags
    range(0x1F3FB, 0x1F400),  # shades of skin
)
_STRETCH_STYLES: Final = {
    StretchState.VERIFIED: "green",
    StretchState.SWEEPING: "yellow",
    StretchState.MISSING: "red",
    StretchState.NOT_LOOKED_AT: "dim",
}
_STATE_STYLES: Final = {"new": "dim", "active": "green", "protected": "magenta", "refused": "red"}


class ScreenAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One suggested handle, and how far it is collected."""

    handle: str
    state: str
    posts: int | None = None
    progress: AccountProgress | None = None
    doing: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the screen shows at one moment."""

    program: str
    title: str
    explained: str
    seconds: float
    posts_per_second: float
    now: datetime
    totals: Totals
    threads_walked: int
    money: str
    accounts: Sequence[ScreenAccount]
    more_accounts: int = 0
    kinds: Sequence[KindStatus]
    arrivals: Sequence[Arrival]
    address: str
    commands: Sequence[str]
    notices: Sequence[str] = ()


def suggestion_line(suggestion: Suggestion) -> ScreenAccount:
    doing = "its profile is looked up" if suggestion.outcome is None else suggestion.reason or ""
    return ScreenAccount(handle=suggestion.handle, state=suggestion.outcome or "new", doing=doing)


def progress_line(progress: AccountProgress, suggested: str) -> ScreenAccount:
    """`suggested` is the handle that was asked for."""
    handle = progress.handle or suggested
    backfill = next((each for each in progress.sweeps if each.kind is SweepKind.BACKFILL and each.alive), None)
    if progress.state is not AccountState.ACTIVE:
        doing = progress.state_reason or ""
    elif backfill and backfill.wait_reason and "second" in backfill.wait_reason:
        doing = "checks the end again"
    elif backfill:
        doing = f"back to {progress.oldest_post_at:%Y-%m-%d}" if progress.oldest_post_at else "begins"
    elif progress.backfilled_at is None or progress.reposts_backfilled_at is None:
        doing = "native retweets" if progress.backfilled_at else "history is missing: see `mistnet coverage`"
    elif progress.alive(SweepKind.CATCH_UP) or progress.alive(SweepKind.REPOSTS):
        doing = "fetches new posts"
    else:
        doing = f"complete since {progress.oldest_post_at:%Y-%m-%d}" if progress.oldest_post_at else "complete"
    doing += "" if handle.lower() == suggested.lower() else f"; was @{suggested}"
    return ScreenAccount(handle=handle, state=progress.state, posts=progress.stored, progress=progress, doing=doing)


def draw(picture: Picture, *, width: int, height: int) -> list[Text]:
    """The picture in at most `height` lines, each cut to `width` cells."""
    clock = f"{int(picture.seconds) // 60}:{int(picture.seconds) % 60:02}"
    title = Text.assemble((picture.program, "bold"), "  ", (picture.title, "bold cyan"))
    title.truncate(max(width - len(clock) - 1, 0), pad=True)
    totals = picture.totals
    facts = [
        (f"{totals.posts:,}", f"posts ({picture.posts_per_second:,.0f}/s)"),
        (f"{picture.threads_walked:,}", "threads"),
        (f"{totals.users:,}", "users"),
        (f"{totals.products:,}", "products"),
        *([tuple(picture.money.split(" ", 1))]),
    ]
    counts = Text("   ").join(Text.assemble((number, "bold"), f" {name}") for number, name in facts)
    head = [Text.assemble(title, " ", (clock, "bold")), counts, Text(picture.explained, style="dim"), Text()]
    footer = list(_footer(picture, width, brief=height < _TALL))
    room = height - len(head) - len(footer)
    kinds = _shown_kinds(picture)
    if width >= _WIDE and room >= len(picture.accounts) + 3 + len(kinds):
        body = _wide_body(picture, width, room)
    else:
        # The queue in one line, and as many accounts as leave room for a few arrivals.
        rows = min(len(picture.accounts), max(room - _FEWEST_ARRIVALS - 4, _OUTCOMES + 2))
        accounts = list(_accounts(picture, width, rows=rows))
        arrivals = min(max(room - len(accounts) - 3, 0), _MOST_ARRIVALS)
        alive = [(kind, _waiting(kind) + kind.states.get(JobState.RUNNING, 0)) for kind in kinds]
        listed = [f"{kind.kind} {jobs}" for kind, jobs in alive if jobs]
        queue = Text.assemble(("jobs left  ", "bold"), ("   ".join(listed) or "none", "yellow" if listed else "dim"))
        body = [*accounts, Text(), queue, *_arrivals(picture, width, rows=arrivals)]
    lines = [*head, *body[: max(room, 0)], *footer][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _footer(picture: Picture, width: int, *, brief: bool) -> Iterator[Text]:
    """Commands are copied by users, so they are wrapped and never cut."""
    for notice in picture.notices:
        yield Text(steady(notice), style="yellow")
    yield Text()
    step = max(width - 2, 20)
    # Addresses may be longer than the screen is wide.
    opened = f"Open {picture.address} in a browser."
    for start in range(0, len(opened), step):
        yield Text(opened[start : start + step], style="bold cyan")
    yield Text(f"Type in another terminal (Ctrl-C here ends `{picture.program}`):", style="dim")
    others = list(picture.commands)
    if others and others[0].startswith("export "):
        export = others.pop(0)
        for start in range(0, len(export), step):
            yield Text(f"  {export[start : start + step]}", style="cyan")
    # A hard space keeps the words of a command on one line.
    words = "   ".join(each.replace(" ", _HARD_SPACE) for each in others)
    lines = textwrap.wrap(words, width - 2, break_long_words=False, break_on_hyphens=False)
    for line in lines[:1] if brief else lines:
        yield Text(f"  {line.replace(_HARD_SPACE, ' ')}", style="cyan")


def _wide_body(picture: Picture, width: int, room: int) -> list[Text]:
    """Accounts above; the queue and what arrives side by side below."""
    accounts = list(_accounts(picture, width, rows=len(picture.accounts)))
    below = min(room - len(accounts) - 1, _MOST_ARRIVALS + 1)
    queue = [Text(f"{'jobs':<13}{'waiting':>8}{'running':>8}{'done':>6}{'gaps':>6}", style="bold")]
    for kind in _shown_kinds(picture):
        running, gaps = kind.states.get(JobState.RUNNING, 0), sum(kind.states.get(each, 0) for each in GAP_STATES)
        cells = (
            f"{kind.kind:<13}",
            (f"{_waiting(kind) or '':>8}", "yellow"),
            (f"{running or '':>8}", "green"),
            f"{kind.done_last_minute or '':>6}",
            (f"{gaps or '':>6}", "dim"),
        )
        queue.append(Text.assemble(*cells))
    arrivals = list(_arrivals(picture, width - _QUEUE_WIDTH, rows=below - 1))
    beside = []
    for one, other in zip_longest(queue[:below], arrivals, fillvalue=Text()):
        cell = one.copy()
        cell.truncate(_QUEUE_WIDTH, pad=True)
        beside.append(Text.assemble(cell, other))
    return [*accounts, Text(), *beside]


def _accounts(picture: Picture, width: int, *, rows: int) -> Iterator[Text]:
    cells = 30 if width >= _WIDE else 12
    yield Text(f"{'account':<16} {'state':<9} {'posts':>6}  {'coverage':<{cells}}  now", style="bold")
    marks = StripStyle(now=picture.now, fine=True, with_reposts=True).marks
    shown, left_out = picture.accounts, picture.more_accounts
    if rows < len(shown):
        left_out += len(shown) - rows + 1
        shown = [*shown[: rows - 1 - _OUTCOMES], *shown[-_OUTCOMES:]]
    for place, line in enumerate(shown):
        if left_out and place == max(len(shown) - _OUTCOMES, 0):
            yield Text(f"… and {left_out:,} more", style="dim")
        history = Text(" " * cells)
        if line.progress and line.progress.state is AccountState.ACTIVE:
            stretches = strip(own_posts(line.progress, picture.now), cells)
            history = Text.assemble(*((marks[each], _STRETCH_STYLES[each]) for each in stretches))
        posts = f"{line.posts:,}" if line.posts else ""
        yield Text.assemble(
            f"{'@' + line.handle:<16} ",
            (f"{line.state:<9} ", _STATE_STYLES.get(line.state, "red")),
            f"{posts:>6}  ",
            history,
            "  ",
            (steady(line.doing), "dim" if line.doing.startswith("complete") else ""),
        )


def _shown_kinds(picture: Picture) -> Sequence[KindStatus]:
    """Kinds that have or had jobs, in the order in which one leads to the next."""
    known: Mapping[str, KindStatus] = {kind.kind: kind for kind in picture.kinds}
    ordered = [known[name] for name in _ORDER if name in known]
    return [kind for kind in ordered if kind.states or kind.done_last_minute]


def _waiting(kind: KindStatus) -> int:
    return sum(kind.states.get(state, 0) for state in (JobState.PENDING, JobState.QUEUED, JobState.RETRYABLE))


def _arrivals(picture: Picture, width: int, *, rows: int) -> Iterator[Text]:
    yield Text("posts arriving", style="bold")
    for arrival in picture.arrivals[: max(rows, 0)]:
        who = set_cell_size(f"@{steady(arrival.handle or '')}", 16)
        said = shorten(steady(arrival.text), width - 30)
        yield Text.assemble(
            (who, "cyan" if arrival.tracked else "magenta"), (f" {arrival.created_at:%Y-%m-%d}  ", "dim"), said
        )
    yield from (Text() for _ in range(rows - len(picture.arrivals)))


def steady(text: str) -> str:
    """The text on one line, without characters that terminals draw in different widths."""
    whole = unicodedata.normalize("NFC", printable(text, one_line=True))
    return "".join(
        each
        for each in whole
        if unicodedata.category(each) not in _UNRELIABLE and not any(ord(each) in block for block in _UNRELIABLE_BLOCKS)
    )


def shorten(text: str, cells: int) -> str:
    """The text cut to a width that also fits on a terminal that does not combine characters."""
    ends = list(accumulate(map(cell_len, text)))
    if not ends or ends[-1] <= cells:
        return text
    return text[: bisect_left(ends, cells)].rstrip() + "…"
