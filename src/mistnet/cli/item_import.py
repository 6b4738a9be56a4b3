"""The items import command: many items from a file, all of them or, on wish, those that are good."""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, Annotated, Any, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.faults import complain
from mistnet.cli.input_files import lines_of
from mistnet.cli.item_files import Checker, FileFormat, format_of, rows_of
from mistnet.cli.output import document
from mistnet.cli.shared import Invocation, shared_options
from mistnet.desk.items import items_of, sources_of
from mistnet.domain.items import Wish
from mistnet.domain.plural import are
from mistnet.domain.plural import counted as number_of
from mistnet.store.items import Outcome

SOME_BAD: Final = 3
_NOTHING_WRITTEN: Final = 2
_AT_ONCE: Final = 1_000
_IN_MEMORY: Final = 16 * 1024 * 1024
_DECODER: Final = msgspec.json.Decoder(Wish)


@shared_options
async def import_items(
    invocation: Invocation,
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV or JSON lines; - is standard input.")],
    *,
    format_: Annotated[
        FileFormat | None,
        typer.Option("--format", metavar="|".join(FileFormat), help="What it is, where its name does not tell."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Take the good rows, and exit with 3 if there are others.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only tell what is wrong; write nothing.")] = False,
) -> int:
    """Follow many things: a row each, its columns named like the fields; any other column is an attribute.

    Every bad row is told with its line, its column, what is wrong and what to do. Then nothing is written, unless
    --skip-bad says to take the others. The same file again changes only what is new in it.
    """
    form = format_of(file, format_)
    async with open_app(invocation.settings) as app:
        checker = Checker(sources_of(app))
        with lines_of(file) as stream, tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool, _bar("checking") as seen:
            for wish in checker.wishes(rows_of(stream, form, file), seen):
                spool.write(msgspec.json.encode(wish) + b"\n")
            written = not check and (skip_bad or not checker.bad)
            outcomes = await _write(app, spool, checker.rows - checker.bad_rows) if written else Counter()
    for each in checker.bad:
        complain(f"{file} {each}")
    shown = document(
        file=file,
        rows=checker.rows,
        bad_rows=checker.bad_rows,
        written=written,
        **{outcome: outcomes[outcome] for outcome in Outcome},
        problems=checker.bad,
    )
    invocation.out.show(shown, _said(checker, outcomes, written=written, check=check))
    if not checker.bad:
        return 0
    return SOME_BAD if skip_bad and not check else _NOTHING_WRITTEN


async def _write(app: App, spool: IO[bytes], rows: int) -> Counter[Outcome]:
    """A part at a time. What is broken off here goes on where it was: run it again."""
    items, outcomes = items_of(app), Counter[Outcome]()
    spool.seek(0)
    with _bar("writing", rows) as done:
        for part in _parts(spool):
            kept = await items.add(part, app.database.clock.now())
            outcomes.update(each.outcome for each in kept)
            done(sum(outcomes.values()))
    return outcomes


def _parts(spool: IO[bytes]) -> Iterator[Sequence[Wish]]:
    while lines := list(islice(spool, _AT_ONCE)):
        yield [_DECODER.decode(line) for line in lines]


def _said(checker: Checker, outcomes: Counter[Outcome], *, written: bool, check: bool) -> str:
    counted = ", ".join(f"{outcomes[each]:,} {each}" for each in Outcome)
    if check:
        return f"{number_of(checker.rows, 'row')} looked at, {checker.bad_rows:,} bad; nothing was written"
    if not written:
        some = f"{checker.bad_rows:,} of {number_of(checker.rows, 'row')} {are(checker.bad_rows)} bad"
        return f"nothing was written: {some}; correct them, or take the others with --skip-bad"
    bad = f", {checker.bad_rows:,} bad and left out" if checker.bad_rows else ""
    return f"{number_of(checker.rows, 'row')}: {counted}{bad}"


@contextmanager
def _bar(what: str, total: int | None = None) -> Iterator[Callable[[int], Any]]:
    """On a terminal alone."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.update(task, completed=rows)
