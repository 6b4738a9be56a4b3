"""The world in a box, as a newcomer meets it: without a terminal, on one, and served to other programs."""

import asyncio
import json
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import typer
from sqlalchemy import text

from mistnet.app import open_app
from mistnet.cli.demo import COMMANDS
from mistnet.cli.demo_world import UNKNOWN_HANDLE, DemoWorld
from mistnet.cli.main import app
from mistnet.settings import load_settings
from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import CommandLine
from tests.terminals import LONG_PATIENCE, on_terminal

SOMEBODYS_OWN = {
    "MISTNET_X_API_KEY": "a-real-key",
    "TWITTERAPI_IO_TOKEN": "another-real-key",
    "MISTNET_X_BASE_URL": "http://127.0.0.1:9",
    "MISTNET_X_DAY_CREDITS": "0",
    "MISTNET_X_REPOSTS": "false",
    "MISTNET_MAX_ATTEMPTS": "1",
    "MISTNET_DATABASE_URL": "nonsense",
}


def left_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_without_a_terminal_the_demo_collects_the_whole_small_world_and_leaves_nothing_behind(
    on_no_file: CommandLine,
) -> None:
    (on_no_file.folder / "mistnet.toml").write_text("x_rate_per_minute = 1\n")
    running = on_no_file.start("demo", "--json", TMPDIR=str(on_no_file.folder), **SOMEBODYS_OWN)
    said, complaints = running.communicate(timeout=LONG_PATIENCE)
    assert (running.returncode, complaints) == (0, "")
    report = json.loads(said)
    assert (report["complete"], report["disagreements"]) == (True, [])
    assert report["accounts"] == {"active": 11, "protected": 1, "refused": 2}
    assert report["posts"] > 4_000
    assert report["native_retweets"] > 100
    assert report["threads_walked"] > 100
    assert report["users"] > report["accounts"]["active"]
    assert report["gone_upstream"]["posts"] > 0
    assert report["products"] >= 7
    assert report["credits"] == round(report["dollars"] * 100_000) > 0
    assert report["failed_calls"] == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", report["dashboard"])
    assert "a-real-key" not in said
    assert left_in(on_no_file.folder) == ["mistnet.toml"]


def test_a_kept_demo_can_be_looked_at_and_a_hole_in_it_is_found(on_no_file: CommandLine) -> None:
    kept = on_no_file.folder / "box of mine"
    told = on_no_file.ok("demo", "--size", "tiny", "--keep", str(kept), TMPDIR=str(on_no_file.folder))
    assert "complete: everything the world shows is stored" in told.out
    assert re.match(r"the dashboard, while it collects: http://127\.0\.0\.1:\d+\n", told.out)
    assert left_in(on_no_file.folder) == ["box of mine"]
    url = f"sqlite:///{kept}/demo.db"
    assert f"export MISTNET_DATABASE_URL='{url}'" in told.out
    shown = on_no_file.ok("status", "--json", MISTNET_DATABASE_URL=url).json
    assert (bool(shown["kinds"]), shown["gaps"]) == (True, {}), "who and what is gone upstream is no gap"

    again = on_no_file("demo", "--keep", str(kept))
    assert again.code == 2
    assert "exists already; name another folder" in again.err

    world = DemoWorld(seed=7, size="tiny", faults="none", latency_seconds=(0, 0))
    wrong = asyncio.run(_disagreements_after_damage(world, url))
    first = world.open_handles[0]
    assert f"posts of @{first} are missing" in wrong
    assert "is active, not protected" in wrong
    assert f"the suggestion of @{UNKNOWN_HANDLE} is accepted" in wrong
    assert "costs GBP 122.55, not GBP 9.99" in wrong
    assert "posts that link https://www.ebay.com/itm/155932418766 are not stored with it" in wrong


async def _disagreements_after_damage(world: DemoWorld, url: str) -> str:
    async with open_app(load_settings(database_url=url)) as opened:
        assert await world.disagreements(opened) == []
        async with opened.database.transaction() as connection:
            newest = "IN (SELECT newest_post_id FROM accounts)"
            await connection.execute(text("DELETE FROM post_links"))
            await connection.execute(text(f"DELETE FROM posts WHERE id {newest}"))
            await connection.execute(text("UPDATE accounts SET state = 'active' WHERE state = 'protected'"))
            accept = text("UPDATE suggestions SET outcome = 'accepted' WHERE handle = :handle")
            await connection.execute(accept, {"handle": UNKNOWN_HANDLE})
            await connection.execute(text("UPDATE offers SET amount = '9.99'"))
        return "\n".join(await world.disagreements(opened))


def test_bad_wishes_are_told_in_one_line(on_no_file: CommandLine) -> None:
    (on_no_file.folder / "file").write_text("")
    for given in (["--size", "huge"], ["--keep", "file"]):
        told = on_no_file("demo", *given)
        assert (told.code, told.out) == (2, "")
        assert re.fullmatch(r"mistnet: error: .*\n", told.err), told.err


def test_every_command_the_demo_recommends_exists() -> None:
    known: Any = typer.main.get_command(app)
    for recommended in COMMANDS:
        command = known
        for word in recommended.split():
            if hasattr(command, "commands"):
                assert word in command.commands, recommended
                command = command.commands[word]


@pytest.mark.in_turn(2)
def test_on_a_terminal_the_demo_shows_what_happens_until_ctrl_c(on_no_file: CommandLine) -> None:
    temporary = on_no_file.folder / "temporary"
    temporary.mkdir()
    with on_terminal(on_no_file, "demo", "--size", "tiny", rows=40, columns=120, TMPDIR=str(temporary)) as terminal:
        seen = terminal.until("the world agrees that nothing is missing")
        for shown in ("collecting a simulated world", "protected", "there is no account"):
            assert shown in seen
        # Which kinds are left when the screen is drawn depends on the speed of the machine.
        assert re.search(r"^(jobs left +)?(suggestion|backfill|reposts|walk|hydrate_user) +[\d,]+", seen, re.MULTILINE)
        assert f"export MISTNET_DATABASE_URL=sqlite:///{temporary}/mistnet-demo-" in seen.replace("\r\n  ", "")
        (address,) = {*re.findall(r"Open (http://127\.0\.0\.1:\d+) in a browser", seen)}
        with urlopen(Request(address, headers={"Accept": "text/html"}), timeout=DEADLINE_SECONDS) as page:
            assert "Posts collected" in page.read().decode()
        terminal.until("An hour passes each second", "catch_up", "2026-10-01")
        (file,) = temporary.glob("mistnet-demo-*/demo.db")
        while most_prices(file) < 2:  # prices move only if shops are visited again
            terminal.until("An hour passes")
        terminal.type(b"\x03")
        assert terminal.ended() == 0
    assert "The database is removed" in terminal.written
    assert "Traceback" not in terminal.written
    assert left_in(temporary) == []


def most_prices(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        asked = "SELECT count(DISTINCT amount) FROM offers GROUP BY product_id"
        return max((prices for (prices,) in connection.execute(asked)), default=0)


def test_ctrl_c_ends_the_demo_even_while_it_begins(on_no_file: CommandLine) -> None:
    with on_terminal(on_no_file, "demo", "--size", "tiny", "--keep", "box", rows=24, columns=80) as terminal:
        terminal.until("making a simulated world")
        terminal.type(b"\x03")
        assert terminal.ended() == 0
    assert f"They stay in sqlite:///{on_no_file.folder}/box/demo.db" in terminal.written.replace("\r\n", "")


def test_a_served_world_answers_other_programs_until_ctrl_c(on_no_file: CommandLine) -> None:
    item_requests = ("--size", "tiny", "--port", "0", "--key", "my-key", "--quiet-accounts", "--restless-people")
    serving = on_no_file.start("sim", "serve", *item_requests, "--json")
    assert serving.stdout is not None
    told = json.loads("".join(iter(serving.stdout.readline, "}\n")) + "}")
    url = told["url"]
    assert told["key"] == "my-key"
    assert [line.partition("=")[0] for line in told["next"][:2]] == [
        "export MISTNET_X_BASE_URL",
        "export MISTNET_X_API_KEY",
    ]
    assert told["next"][2].endswith(f"track {' '.join(told['handles'][:3])}")
    assert list(told["also"]) == ["Threads", "shops", "eBay's API", "price sources"]
    (token,) = re.findall(r"MISTNET_THREADS_TOKEN=(\S+)", told["also"]["Threads"][0])
    with urlopen(f"{url}/v1.0/me?access_token={token}", timeout=DEADLINE_SECONDS) as answer:
        assert json.loads(answer.read())["id"]

    asked = Request(f"{url}/twitter/user/info?userName={told['handles'][0]}", headers={"X-API-Key": "my-key"})
    with urlopen(asked, timeout=DEADLINE_SECONDS) as answer:
        assert json.loads(answer.read())["data"]["userName"] == told["handles"][0]

    with urlopen(f"{url}/_sim/account?handle={told['handles'][-1]}", timeout=DEADLINE_SECONDS) as answer:
        assert json.loads(answer.read())["account"]["search"] == []

    taken = on_no_file("sim", "serve", "--size", "tiny", "--port", url.rpartition(":")[2])
    assert taken.code == 2
    assert "it is already in use; give another one, or 0 for a free one" in taken.err

    serving.send_signal(signal.SIGINT)
    _, complaints = serving.communicate(timeout=DEADLINE_SECONDS)
    assert serving.returncode == 0
    assert "Traceback" not in complaints


def test_wrong_wishes_for_a_served_world_are_told_in_one_line(on_no_file: CommandLine) -> None:
    for given in (
        ["--latency", "2,1"],
        ["--key", "a b"],
        ["--tier", "gold"],
        ["--speed", "0"],
        ["--speed", "nan"],
    ):
        told = on_no_file("sim", "serve", *given)
        assert (told.code, told.out) == (2, "")
        assert re.fullmatch(r"mistnet: error: .*\n", told.err), told.err
