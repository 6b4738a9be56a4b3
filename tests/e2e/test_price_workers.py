"""Many workers on one table of price jobs: each job done exactly once, no point twice, and the dead are replaced."""

import asyncio
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from mistnet.app import open_app
from mistnet.prices.store.items import Items
from mistnet.settings import load_settings
from mistnet.sim.market import CLIENT_ID, CLIENT_SECRET, HUB_KEY, HUB_VARIABLE, SHOPS_FILE
from mistnet.sim.market_goods import Good
from tests.e2e.conftest import QUICK, RESTLESS, CommandLine, until
from tests.markets import request_for
from tests.simulated import ask_world

WORKERS = 3
BATCH = 100
MOST_ITEMS = 2_000
SEED = 7
PATIENCE = 480.0
DOUBLE = "SELECT item_id, source, dedupe_key FROM price_points GROUP BY 1, 2, 3 HAVING count(*) > 1"
LOST = "SELECT worker, error FROM job_errors WHERE error LIKE 'the lease ran out%'"


def settings_for(sim_url: str, folder: Path) -> dict[str, str]:
    file = folder / "shops.toml"
    file.write_text(SHOPS_FILE.replace("rate_per_minute = 600", "rate_per_minute = 100000"))
    return {
        **QUICK,
        "MISTNET_EBAY_BASE_URL": sim_url,
        "MISTNET_EBAY_CLIENT_ID": CLIENT_ID,
        "MISTNET_EBAY_CLIENT_SECRET": CLIENT_SECRET,
        "MISTNET_EBAY_RATE_PER_MINUTE": "1000000",
        "MISTNET_EBAY_LISTINGS": "400",
        "MISTNET_PRICE_SOURCES": str(file),
        "MISTNET_CRAWL_VIA": json.dumps({"*": sim_url}),
        "MISTNET_LOG_LEVEL": "ERROR",
        HUB_VARIABLE: HUB_KEY,
    }


async def follow(url: str, environment: Mapping[str, str], goods: range, sources: list[str]) -> int:
    """Items and their price jobs, without the cost of a process each; returns how many jobs."""
    given = {
        "ebay_client_id": environment["MISTNET_EBAY_CLIENT_ID"],
        "ebay_client_secret": environment["MISTNET_EBAY_CLIENT_SECRET"],
        "price_sources": Path(environment["MISTNET_PRICE_SOURCES"]),
    }
    async with open_app(load_settings(database_url=url, **given)) as app:
        item_requests = [request_for(Good(SEED, index), sources=sources) for index in goods]
        kept = await Items(app.database).add(item_requests, app.database.clock.now())
        made = await app.valuing.ask([each.item_id for each in kept], None, app.job_writer)
    return made.created


def process_in_batches(command: CommandLine, environment: Mapping[str, str]) -> int:
    """Price jobs for several workers until more than one of them has done some; returns how many jobs."""
    names = [f"worker-{number}" for number in range(1, WORKERS + 1)]
    workers = [command.start("work", "--concurrency", "8", WORKER_ID=name, **environment) for name in names]
    until(lambda: len(command.sql("SELECT name FROM workers")) == WORKERS)
    count = 0
    while count < MOST_ITEMS:
        count += asyncio.run(follow(command.url, environment, range(count, count + BATCH), ["ebay_api"]))
        until(lambda: not command.sql("SELECT id FROM jobs"))
        if len(command.sql("SELECT DISTINCT worker FROM job_history")) > 1:
            break
    for worker in workers:
        worker.terminate()
    for worker in workers:
        _out, errors = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0, errors
    return count


@pytest.mark.in_turn(1)
def test_several_workers_process_each_price_job_exactly_once(
    on_postgres: CommandLine, sim_url: str, tmp_path: Path
) -> None:
    mistnet, environment = on_postgres, settings_for(sim_url, tmp_path)
    count = process_in_batches(mistnet, environment)
    ended = mistnet.sql("SELECT id, key, state, attempts, worker FROM job_history WHERE kind = 'price'")
    assert len(ended) == count
    assert Counter(row["key"] for row in ended).most_common(1)[0][1] == 1
    assert {(row["state"], row["attempts"]) for row in ended} <= {("succeeded", 0), ("succeeded", 1)}
    assert mistnet.sql("SELECT id FROM jobs") == []
    searches = mistnet.sql("SELECT job_id FROM calls WHERE endpoint = 'item_summary/search'")
    pages = Counter(row["job_id"] for row in searches)
    assert set(pages) == {row["id"] for row in ended}
    assert mistnet.sql(DOUBLE) == []
    assert mistnet.sql(LOST) == []
    assert mistnet.sql("SELECT count(*) AS n FROM item_looks WHERE problem IS NULL") == [{"n": count}]
    assert mistnet.sql("SELECT count(*) AS n FROM price_points")[0]["n"] > 2 * count
    assert len({row["worker"].partition(".")[0] for row in ended}) > 1, "one worker did it all"


def test_the_points_that_workers_bring_are_what_the_markets_say(
    on_postgres: CommandLine, sim_url: str, tmp_path: Path
) -> None:
    mistnet, environment = on_postgres, settings_for(sim_url, tmp_path)
    sources = ["ebay_api", "hub", "cabinet"]
    assert asyncio.run(follow(mistnet.url, environment, range(6), sources)) == 18
    mistnet.ok("work", "--until-idle", **environment)
    for index in range(6):
        told = ask_world(sim_url, f"good?index={index}")["points"]
        wanted = {
            (source, name, kind, Decimal(amount), currency)
            for source, market in zip(sources, ("ebay", "hub", "cabinet"), strict=True)
            for name, (kind, amount, currency) in told[market].items()
        }
        rows = mistnet.sql(
            "SELECT p.source, p.external_id, p.url, p.kind, p.amount, p.currency FROM price_points p "
            "JOIN items i ON i.id = p.item_id WHERE i.ref = :ref",
            ref=Good(SEED, index).code,
        )
        found = {
            (
                row["source"],
                row["external_id"] or row["url"].partition("?")[0],
                row["kind"],
                Decimal(row["amount"]),
                row["currency"],
            )
            for row in rows
        }
        assert found == wanted


@contextmanager
def silence() -> Iterator[str]:
    """A server that accepts every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_another_worker_finishes_what_a_dead_one_held(on_postgres: CommandLine, sim_url: str, tmp_path: Path) -> None:
    mistnet, environment = on_postgres, {**settings_for(sim_url, tmp_path), **RESTLESS}
    asyncio.run(follow(mistnet.url, environment, range(3), ["ebay_api"]))
    with silence() as nobody:
        doomed = mistnet.start(
            "work", "--concurrency", "8", **{**environment, "MISTNET_EBAY_BASE_URL": nobody, "WORKER_ID": "doomed"}
        )
        until(lambda: len(mistnet.sql("SELECT id FROM jobs WHERE state = 'running'")) == 3)
        (held,) = {row["worker"] for row in mistnet.sql("SELECT worker FROM jobs")}
        os.kill(doomed.pid, signal.SIGKILL)
        doomed.wait()
    mistnet.ok("work", "--until-idle", **environment, WORKER_ID="heir")
    assert {row["worker"] for row in mistnet.sql(LOST)} == {held}
    ended = mistnet.sql("SELECT state, worker FROM job_history WHERE kind = 'price'")
    assert [row["state"] for row in ended] == ["succeeded"] * 3
    assert {row["worker"].partition(".")[0] for row in ended} == {"heir"}
    assert mistnet.sql(DOUBLE) == []
    assert mistnet.sql("SELECT count(*) AS n FROM item_looks WHERE points > 0") == [{"n": 3}]


def test_a_source_is_tried_before_anything_is_followed_and_nothing_is_stored(
    on_sqlite: CommandLine, sim_url: str, tmp_path: Path
) -> None:
    good = Good(SEED, 1)
    environment = settings_for(sim_url, tmp_path)
    year = f"year={good.year}"
    ran = on_sqlite("sources", "try", "hub", "--title", good.title, "--attribute", year, "--json", **environment)
    assert ran.code == 0, ran.err
    told = ask_world(sim_url, "good?index=1")["points"]["hub"]
    fitting = {each["external_id"]: [each["kind"], each["amount"]] for each in ran.json["listings"] if each["fits"]}
    assert {name: [kind, Decimal(amount)] for name, (kind, amount) in fitting.items()} == {
        name: [kind, Decimal(amount)] for name, (kind, amount, _currency) in told.items()
    }
    for table in ("items", "price_points", "item_looks", "odd_listings", "jobs"):
        assert on_sqlite.sql(f"SELECT count(*) AS n FROM {table}") == [{"n": 0}]
    assert on_sqlite.sql("SELECT key FROM cached_answers WHERE key LIKE 'hub|%'") == []
    text = on_sqlite("sources", "try", "cabinet", "--title", good.title, **environment)
    assert "What cabinet answers" in text.out
    wrong = on_sqlite("sources", "try", "hob", "--title", "x", **environment)
    assert wrong.code == 2
    assert "Did you mean 'hub'?" in wrong.err
    odd = on_sqlite("sources", "try", "hub", "--title", "x", "--attribute", "1921", **environment)
    assert (odd.code, "NAME=VALUE" in odd.err) == (2, True)


def test_a_file_of_shops_that_is_wrong_is_one_clear_line(on_sqlite: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[shops.mine]\nurl = "https://a.example/?q={query}"\nformat = "xml"\n')
    ran = on_sqlite("sources", MISTNET_PRICE_SOURCES=str(file))
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert f"{file}: shop mine: format:" in ran.err
