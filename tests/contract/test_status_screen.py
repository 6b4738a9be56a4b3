"""What `status` looks like on a terminal of 100 columns, with much to show and long words in all of it."""

import io
import re

import msgspec
from rich.cells import cell_len
from rich.console import Console

from mistnet.cli.output import tables
from mistnet.cli.status import Status, blocks, kinds_grid, status_of
from mistnet.queue.model import WorkerName
from mistnet.queue.store.inspect import SeenWorker
from mistnet.social.store.tracking import RefusedHandle
from tests.browser.furnished import LONG, furnish
from tests.harvests import open_harvest

ADDRESS = f"postgresql://mistnet:***@database.{'long-' * 30}name.example/mistnet?sslmode=verify-full"
COLUMNS = 100


async def crowded(url: str) -> Status:
    """The status of a furnished database, with long words also where that has none."""
    async with open_harvest(url, x_day_credits=200_000) as app:
        await furnish(app)
        shown = await status_of(app.database, app.settings)
        now = shown.at
        return msgspec.structs.replace(
            shown,
            database=ADDRESS,
            kinds=[msgspec.structs.replace(each, paused=LONG) for each in shown.kinds],
            refused=[RefusedHandle(handle=f"a_handle_{LONG}", reason=f"unavailable: {LONG}", refused_at=now)],
            workers=[
                SeenWorker(
                    name=WorkerName(f"worker-of-{LONG}"),
                    host="here",
                    pid=7,
                    running=1,
                    concurrency=20_000,
                    lanes=", ".join(f"lane-{place}" for place in range(40)),
                    version="0.1.0",
                    started_at=now,
                    seen_at=now,
                    draining=True,
                )
            ],
        )


def drawn(status: Status, width: int) -> list[str]:
    file = io.StringIO()
    Console(width=width, file=file, color_system=None).print(tables(blocks(status), width))
    return [line.rstrip() for line in file.getvalue().splitlines()]


async def test_nothing_in_status_is_wrapped_at_100_columns(sqlite_url: str) -> None:
    shown = await crowded(sqlite_url)
    lines = drawn(shown, COLUMNS)
    assert [line for line in lines if cell_len(line) > COLUMNS] == []
    assert len(lines) == len(drawn(shown, 5 * COLUMNS)), "\n".join(lines)
    assert any(line.startswith("queue on postgresql://mistnet:***@database.long-") for line in lines)
    assert any(line.endswith("…") for line in lines), "what does not fit is cut visibly"


async def test_status_begins_with_what_is_collected_what_it_cost_and_what_needs_someone(sqlite_url: str) -> None:
    sentence = r"[\d,]+ posts of 1 account, 0 complete; \$\d+\.\d\d of \$2\.00 today; \d+ things need you\."
    assert re.fullmatch(sentence, drawn(await crowded(sqlite_url), COLUMNS)[0])


async def test_status_shows_no_empty_column_and_numbers_at_the_right(sqlite_url: str) -> None:
    shown = await crowded(sqlite_url)
    lines = drawn(shown, COLUMNS)
    names, _, *rows = lines[next(place for place, line in enumerate(lines) if line.startswith("queue on")) + 1 :]
    grid = kinds_grid(shown)
    empty = {name for name, *cells in zip(grid.columns, *grid.rows, strict=True) if not any(cells)}
    assert empty, "otherwise there is nothing to leave out"
    assert not any(name in names for name in empty)
    end = names.index("pending") + len("pending")
    crawl = next(line for line in rows if line.startswith("crawl"))
    assert re.fullmatch(r"crawl +\d+", crawl[:end]), "the number ends where the name of its column ends"
