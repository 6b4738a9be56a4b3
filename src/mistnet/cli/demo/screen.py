"""How the demo looks on a terminal: every line cut to its width, and never more lines than there is room for."""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate, zip_longest
from typing import Final

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from mistnet.cli.coverage import View
from mistnet.cli.printable import printable
from mistnet.cli.status import KindStatus
from mistnet.operations.overview import Arrival, Totals
from mistnet.queue.model import GAP_STATES, JobState
from mistnet.social.accounts import AccountState
from mistnet.social.coverage.model import AccountProgress, StretchState, SweepKind, own_posts, strip
from mistnet.social.store.tracking import Suggestion
from mistnet.sources.x.client import shown_dollars

_WIDE, _TALL = 110, 30
_QUEUE_WIDTH: Final = 44
_FEWEST_ARRIVALS: Final = 3
_MOST_ARRIVALS: Final = 12
_OUTCOMES: Final = 3
"""So many accounts at the end of the list show how else a suggestion can end: they are never left out."""
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
_STANDING_STYLES: Final = {
    StretchState.VERIFIED: "green",
    StretchState.SWEEPING: "yellow",
    StretchState.MISSING: "red",
    StretchState.NOT_LOOKED_AT: "dim",
}
_STATE_STYLES: Final = {"new": "dim", "active": "green", "protected": "magenta", "refused": "red"}


class DemoAccountLine(msgspec.Struct, frozen=True, kw_only=True):
    """One handle that was suggested, and how far it is."""

    handle: str
    state: str
    posts: int | None = None
    progress: AccountProgress | None = None
    doing: str


class DemoPicture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown of one moment."""

    title: str
    explained: str
    seconds: float
    posts_per_second: float
    world_now: datetime
    totals: Totals
    threads_walked: int
    credits: int
    failures: int
    accounts: Sequence[DemoAccountLine]
    kinds: Sequence[KindStatus]
    arrivals: Sequence[Arrival]
    commands: Sequence[str]
    dashboard: str


def account_line(told: Suggestion, progress: AccountProgress | None) -> DemoAccountLine:
    if told.outcome is None:
        return DemoAccountLine(handle=told.handle, state="new", doing="its profile is looked up")
    if progress is None:
        return DemoAccountLine(handle=told.handle, state=told.outcome, doing=told.reason or "")
    handle = progress.handle or told.handle
    renamed = "" if handle.lower() == told.handle.lower() else f"; was @{told.handle}"
    doing = f"{_doing(progress)}{renamed}"
    return DemoAccountLine(handle=handle, state=progress.state, posts=progress.stored, progress=progress, doing=doing)


def _doing(progress: AccountProgress) -> str:
    if progress.state is not AccountState.ACTIVE:
        return progress.state_reason or ""
    backfill = next((each for each in progress.sweeps if each.kind is SweepKind.BACKFILL and each.alive), None)
    if backfill:
        if backfill.wait_reason and "second" in backfill.wait_reason:
            return "a second look at the end"
        return f"back to {progress.oldest_post_at:%Y-%m-%d}" if progress.oldest_post_at else "begins"
    if not progress.reposts_backfilled_at:
        return "native retweets"
    if progress.alive(SweepKind.CATCH_UP) or progress.alive(SweepKind.REPOSTS):
        return "looks for what is new"
    return f"complete since {progress.oldest_post_at:%Y-%m-%d}" if progress.oldest_post_at else "complete"


def draw(picture: DemoPicture, *, width: int, height: int) -> list[Text]:
    """All of it in `height` lines of `width` cells."""
    footer = list(_footer(picture, width, brief=height < _TALL))
    head = list(_head(picture, width))
    room = height - len(head) - len(footer)
    wide = width >= _WIDE and room >= len(picture.accounts) + 3 + len(_shown_kinds(picture))
    body = _wide_body(picture, width, room) if wide else _narrow_body(picture, width, room)
    return [*head, *body[: max(room, 0)], *footer][:height]


def _head(picture: DemoPicture, width: int) -> Iterator[Text]:
    clock = f"{int(picture.seconds) // 60}:{int(picture.seconds) % 60:02}"
    title = Text.assemble(("mistnet demo", "bold"), "  ", (picture.title, "bold cyan"))
    title.truncate(max(width - len(clock) - 1, 0), pad=True)
    yield Text.assemble(title, " ", (clock, "bold"))
    totals = picture.totals
    facts = [
        (f"{totals.posts:,}", f"posts ({picture.posts_per_second:,.0f}/s)"),
        (f"{picture.threads_walked:,}", "threads"),
        (f"{totals.users:,}", "users"),
        (f"{totals.products:,}", "products"),
        (f"{picture.credits:,}", f"credits ({shown_dollars(picture.credits)})"),
        *([(f"{picture.failures:,}", "faults")] if picture.failures else []),
    ]
    yield Text("   ").join(Text.assemble((number, "bold"), f" {name}") for number, name in facts)
    yield Text(picture.explained, style="dim")
    yield Text()


def _footer(picture: DemoPicture, width: int, *, brief: bool) -> Iterator[Text]:
    """Commands are for copying, so they are wrapped, never cut."""
    yield Text()
    yield Text.assemble(("Open ", "dim"), (picture.dashboard, "bold cyan"), (" in a browser.", "dim"))
    yield Text("Type in another terminal (Ctrl-C here ends the demo):", style="dim")
    export, *others = picture.commands
    step = max(width - 2, 20)
    for start in range(0, len(export), step):
        yield Text(f"  {export[start : start + step]}", style="cyan")
    lines = list(_filled(others, width - 2))
    yield from (Text(f"  {line}", style="cyan") for line in (lines[:1] if brief else lines))


def _filled(words: Sequence[str], width: int) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + 3 + len(word) > width:
            yield line
            line = ""
        line = f"{line}   {word}" if line else word
    yield line


def _wide_body(picture: DemoPicture, width: int, room: int) -> list[Text]:
    """Accounts above; the queue and what arrives side by side below."""
    accounts = list(_accounts(picture, width, rows=len(picture.accounts)))
    below = min(room - len(accounts) - 1, _MOST_ARRIVALS + 1)
    left = list(_queue(picture))[:below]
    right = list(_arrivals(picture, width - _QUEUE_WIDTH, rows=below - 1))
    beside = []
    for one, other in zip_longest(left, right, fillvalue=Text()):
        cell = one.copy()
        cell.truncate(_QUEUE_WIDTH, pad=True)
        beside.append(Text.assemble(cell, other))
    return [*accounts, Text(), *beside]


def _narrow_body(picture: DemoPicture, width: int, room: int) -> list[Text]:
    """The queue in one line, and as many accounts as leave room for a few arrivals."""
    rows = min(len(picture.accounts), max(room - _FEWEST_ARRIVALS - 4, _OUTCOMES + 2))
    accounts = list(_accounts(picture, width, rows=rows))
    arrivals = min(max(room - len(accounts) - 3, 0), _MOST_ARRIVALS)
    return [*accounts, Text(), _queue_line(picture), *_arrivals(picture, width, rows=arrivals)]


def _accounts(picture: DemoPicture, width: int, *, rows: int) -> Iterator[Text]:
    cells = 30 if width >= _WIDE else 12
    yield Text(f"{'account':<16} {'state':<9} {'posts':>6}  {'coverage':<{cells}}  now", style="bold")
    shown, left_out = picture.accounts, 0
    if rows < len(shown):
        left_out = len(shown) - rows + 1
        shown = [*shown[: rows - 1 - _OUTCOMES], *shown[-_OUTCOMES:]]
    for place, line in enumerate(shown):
        if left_out and place == len(shown) - _OUTCOMES:
            yield Text(f"… and {left_out} more", style="dim")
        yield _account(line, cells, picture.world_now)


def _account(line: DemoAccountLine, cells: int, now: datetime) -> Text:
    posts = f"{line.posts:,}" if line.posts else ""
    done = line.doing.startswith("complete")
    return Text.assemble(
        f"{'@' + line.handle:<16} ",
        (f"{line.state:<9} ", _STATE_STYLES.get(line.state, "red")),
        f"{posts:>6}  ",
        _bar(line.progress, cells, now),
        "  ",
        (steady(line.doing), "dim" if done else ""),
    )


def _bar(progress: AccountProgress | None, cells: int, now: datetime) -> Text:
    """The account's life from left to right."""
    if progress is None or progress.state is not AccountState.ACTIVE:
        return Text(" " * cells)
    marks = View(now=now, fine=True, with_reposts=True).marks
    return Text.assemble(*((marks[each], _STANDING_STYLES[each]) for each in strip(own_posts(progress, now), cells)))


def _shown_kinds(picture: DemoPicture) -> Sequence[KindStatus]:
    """Kinds that had anything to do, in the order in which one leads to the next."""
    known: Mapping[str, KindStatus] = {kind.kind: kind for kind in picture.kinds}
    ordered = [known[name] for name in _ORDER if name in known]
    return [kind for kind in ordered if kind.states or kind.done_last_minute]


def _waiting(kind: KindStatus) -> int:
    return sum(kind.states.get(state, 0) for state in (JobState.PENDING, JobState.QUEUED, JobState.RETRYABLE))


def _queue(picture: DemoPicture) -> Iterator[Text]:
    yield Text(f"{'jobs':<13}{'waiting':>8}{'running':>8}{'done':>6}{'gaps':>6}", style="bold")
    for kind in _shown_kinds(picture):
        running, gaps = kind.states.get(JobState.RUNNING, 0), sum(kind.states.get(each, 0) for each in GAP_STATES)
        yield Text.assemble(
            f"{kind.kind:<13}",
            (f"{_waiting(kind) or '':>8}", "yellow"),
            (f"{running or '':>8}", "green"),
            f"{kind.done_last_minute or '':>6}",
            (f"{gaps or '':>6}", "dim"),
        )


def _queue_line(picture: DemoPicture) -> Text:
    alive = [(kind, _waiting(kind) + kind.states.get(JobState.RUNNING, 0)) for kind in _shown_kinds(picture)]
    listed = [f"{kind.kind} {jobs}" for kind, jobs in alive if jobs]
    return Text.assemble(("jobs left  ", "bold"), ("   ".join(listed) or "none", "yellow" if listed else "dim"))


def _arrivals(picture: DemoPicture, width: int, *, rows: int) -> Iterator[Text]:
    yield Text("posts arriving", style="bold")
    for arrival in picture.arrivals[: max(rows, 0)]:
        who = set_cell_size(f"@{steady(arrival.handle or '')}", 16)
        said = shortened(steady(arrival.text), width - 30)
        yield Text.assemble(
            (who, "cyan" if arrival.tracked else "magenta"), (f" {arrival.created_at:%Y-%m-%d}  ", "dim"), said
        )
    yield from (Text() for _ in range(rows - len(picture.arrivals)))


def steady(text: str) -> str:
    """On one line, without the characters of which terminals do not agree how wide they are."""
    whole = unicodedata.normalize("NFC", printable(text, one_line=True))
    return "".join(each for each in whole if _is_reliable(each))


def _is_reliable(character: str) -> bool:
    code = ord(character)
    return unicodedata.category(character) not in _UNRELIABLE and not any(code in each for each in _UNRELIABLE_BLOCKS)


def shortened(text: str, cells: int) -> str:
    """Cut to a width at which even a terminal that joins no characters has room."""
    ends = list(accumulate(map(cell_len, text)))
    if not ends or ends[-1] <= cells:
        return text
    return text[: bisect_left(ends, cells)].rstrip() + "…"


_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"
_CLEAR_REST_OF_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"
_CLEAR_ALL: Final = "\x1b[2J\x1b[H"


class Canvas:
    """The lines drawn last. The cursor rests below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._size = console.size
        self._drawn: list[str] = []

    @property
    def width(self) -> int:
        """The last column stays free: what is cleared after a full line would begin there."""
        return self._console.size.width - 1

    @property
    def height(self) -> int:
        """Lines there is room for above the cursor's."""
        return self._console.size.height - 1

    def draw(self, lines: Sequence[Text]) -> None:
        written = [self._start()]
        fresh = [self._escaped(line) for line in lines[: self.height]]
        for line, before in zip_longest(fresh, self._drawn[: len(fresh)]):
            written.append("\n" if line == before else f"{line}{_CLEAR_REST_OF_LINE}\n")
        self._drawn = fresh
        self._write("".join([*written, _CLEAR_BELOW]))

    def _start(self) -> str:
        """Back to the first line. What was drawn for another width lies in ruins: then everything is drawn anew."""
        size = self._console.size
        if size != self._size:
            self._size, self._drawn = size, []
            return _CLEAR_ALL
        return f"\r\x1b[{len(self._drawn)}A" if self._drawn else "\r"

    def _escaped(self, line: Text) -> str:
        with self._console.capture() as captured:
            line.truncate(self.width, overflow="ellipsis")
            self._console.print(line, end="", no_wrap=True, highlight=False)
        return captured.get()

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


@contextmanager
def canvas(console: Console) -> Iterator[Canvas]:
    """Without a cursor, and without wrapping: a line that the terminal takes to be wider than we do stays one line."""
    console.show_cursor(False)
    console.file.write(_WRAP_OFF)
    try:
        yield Canvas(console)
    finally:
        console.file.write(f"\r{_CLEAR_BELOW}{_WRAP_ON}")
        console.show_cursor(True)
        console.file.flush()
