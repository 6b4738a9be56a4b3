"""From a handle to its posts: the commands against a simulated source over HTTP."""

import json
import re
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, CommandLine
from tests.e2e.slips import list_misreported
from tests.simulated import ask_world

NOBODY = "99"


class Sim:
    """A world behind HTTP, and its own word on what is true."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str) -> Any:
        return ask_world(self.url, path)

    def calls(self) -> dict[str, int]:
        found: dict[str, int] = self.ask("stats")["calls"]
        return {name.rpartition("/")[2]: count for name, count in found.items()}

    def account(self, handle: str) -> Any:
        return self.ask(f"account?handle={handle}")["account"]


@pytest.fixture
def sim(sim_url: str) -> Sim:
    return Sim(sim_url)


@pytest.fixture
def collector(mistnet: CommandLine, sim: Sim) -> CommandLine:
    """The command with a key, on both databases."""
    mistnet.settings |= {**QUICK, "MISTNET_X_BASE_URL": sim.url}
    return mistnet


@pytest.fixture
def small_collector(on_sqlite: CommandLine, sim: Sim) -> CommandLine:
    """The same on SQLite alone, for what does not depend on the database."""
    on_sqlite.settings |= {**QUICK, "MISTNET_X_BASE_URL": sim.url}
    return on_sqlite


def stored(collector: CommandLine, user_id: str) -> set[int]:
    rows = collector.sql("SELECT id FROM posts WHERE author_id = :author", author=int(user_id))
    return {row["id"] for row in rows}


def jobs(collector: CommandLine) -> list[tuple[str, str]]:
    live = collector.sql("SELECT kind, key FROM jobs WHERE state NOT IN ('failed', 'dead') ORDER BY kind, key")
    return [(row["kind"], row["key"]) for row in live]


def test_from_two_handles_to_all_their_posts_and_on(collector: CommandLine, sim: Sim) -> None:
    first, second = sim.ask("accounts")["handles"][:2]
    begun = collector.ok("track", f"@{first}", f"https://x.com/{second}")
    assert f"@{first}: its profile is looked up, then its posts are collected" in begun.out
    assert "next: `mistnet up`" in begun.out
    again = collector.ok("track", first.upper(), "--json").json["accounts"]
    assert [each["result"] for each in again] == ["already suggested"]

    assert collector("work", "--until-idle").code == 0, "people who are gone are no gaps"
    for handle in (first, second):
        truth = sim.account(handle)
        wanted = {int(each) for each in (*truth["search"], *truth["retweets"])}
        assert wanted
        assert wanted <= stored(collector, truth["user_id"])

    told = collector.ok("track", first, "--json").json["accounts"][0]
    user_id = sim.account(first)["user_id"]
    assert (told["result"], told["user_id"]) == ("already tracked", user_id)
    assert told["note"] == "is tracked; what is new will be collected"
    assert jobs(collector) == [("catch_up", user_id)]
    assert "a catch-up is under way" in collector.ok("track", first).out

    gone = collector.ok("untrack", first, "--json").json["accounts"][0]
    assert (gone["result"], gone["user_id"]) == ("untracked", user_id)
    assert jobs(collector) == []
    assert stored(collector, user_id)
    assert collector.ok("suggest", first, "--json").json["suggestions"][0]["result"] == "added"
    assert collector("work", "--until-idle").code in (0, 3)
    assert collector.sql("SELECT state FROM accounts WHERE user_id = :id", id=int(user_id)) == [{"state": "active"}]


def test_an_unknown_handle_is_refused_with_the_reason(small_collector: CommandLine) -> None:
    small_collector.ok("suggest", "nobody_at_all", "--wallet", "0xabc", "--label", "team=red")
    small_collector.ok("work", "--until-idle")
    (closed,) = small_collector.sql("SELECT outcome, reason, wallet, CAST(labels AS text) AS labels FROM suggestions")
    assert json.loads(closed.pop("labels")) == {"team": "red"}
    assert closed == {"outcome": "refused", "reason": "there is no account of that name", "wallet": "0xabc"}


def test_tracking_by_id_collects_too(small_collector: CommandLine, sim: Sim) -> None:
    truth = sim.account(sim.ask("accounts")["handles"][3])
    told = small_collector.ok("track", "--by-id", truth["user_id"], "--json").json["accounts"]
    assert [(each["user_id"], each["result"]) for each in told] == [(truth["user_id"], "added")]
    assert small_collector("work", "--until-idle").code in (0, 3)
    assert {int(each) for each in truth["search"]} <= stored(small_collector, truth["user_id"])


def test_a_quote_fetches_only_profiles_and_tracks_no_account(small_collector: CommandLine, sim: Sim) -> None:
    handles = sim.ask("accounts")["handles"][:2]
    before = sim.calls()
    told = small_collector.ok("track", "--quote", *handles, handles[0].upper(), "nobody_at_all", "--json").json
    after = sim.calls()
    assert {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)} == {
        "info": 3
    }
    assert [bool(each["problem"]) for each in told["quotes"]] == [False, False, True]
    assert told["quotes"][0]["post_credits"] >= 15 * len(sim.account(handles[0])["search"])
    assert told["total"]["credits"] == sum(each["credits"] for each in told["quotes"])
    assert told["total"]["dollars"] == told["total"]["credits"] / 100_000
    assert "40% of the posts" in told["assumption"]
    assert small_collector.sql("SELECT count(*) AS n FROM users") == [{"n": 0}]
    assert (jobs(small_collector), small_collector.sql("SELECT id FROM suggestions")) == ([], [])
    assert small_collector.sql("SELECT sum(credits) AS n FROM calls") == [{"n": 18 + 18 + 15}]

    capped = small_collector.ok("track", "--quote", handles[0], MISTNET_X_DAY_CREDITS="1000").out
    assert "the cap on a day's credits stretches it to about" in capped
    assert re.search(r"credits \(\$\d+\.\d\d\)", capped)
    assert "at the rate of your keys at least" in capped


def test_a_quote_that_fails_halfway_shows_what_was_paid_for(small_collector: CommandLine, sim: Sim) -> None:
    handles = sim.ask("accounts")["handles"][:3]
    told = small_collector("track", "--quote", *handles, MISTNET_X_DAY_CREDITS="40")
    assert (told.code, told.out.count("@")) == (1, 2)
    assert told.err.splitlines()[-1].endswith("; nothing is tracked")


def test_without_a_key_tracking_is_noted_and_asking_is_refused(small_collector: CommandLine) -> None:
    del small_collector.settings["MISTNET_X_API_KEY"]
    for noted in ("track ann", "suggest bea", "hydrate users 7 --background"):
        assert (
            "workers will need a key for X: `mistnet init --key KEY` stores one"
            in small_collector.ok(*noted.split()).out
        )
    for asking in ("track --quote ann", "hydrate users 7"):
        refused = small_collector(*asking.split())
        assert (refused.code, refused.out) == (2, "")
        assert "no key for X is configured: store a TwitterAPI.io key with `mistnet init --key KEY`" in refused.err
        assert len(refused.err.splitlines()) == 1


def test_hydration_is_all_or_nothing(small_collector: CommandLine, sim: Sim) -> None:
    truths = [sim.account(handle) for handle in sim.ask("accounts")["handles"][:2]]
    ids = [truth["user_id"] for truth in truths]
    missing = small_collector("hydrate", "users", *ids, NOBODY)
    assert (missing.code, missing.out) == (3, "")
    assert f"x does not return 1 of 3 users: {NOBODY}. Nothing was written" in missing.err
    told_missing = small_collector("hydrate", "users", *ids, NOBODY, "--json").json
    assert (told_missing["missing"], told_missing["calls"]) == ([NOBODY], 1)
    assert small_collector.sql("SELECT id FROM users") == []

    assert "2 users fetched and written in 1 call" in small_collector.ok("hydrate", "users", *ids).out
    calls = sim.calls()
    assert "all 2 users are stored already: nothing was fetched" in small_collector.ok("hydrate", "users", *ids).out
    assert sim.calls() == calls
    (small_collector.folder / "posts").write_text("\n".join(truths[0]["search"][:3]))
    told = small_collector.ok("hydrate", "posts", "--file", "posts", "--json").json
    assert sorted(told["fetched"]) == sorted(truths[0]["search"][:3])
    assert small_collector.ok("hydrate", "users", *ids, "--force", "--json").json["fetched"] == sorted(ids, key=int)
    event = small_collector.ok("hydrate", "event", told["ingest_id"], "--json").json
    assert (event["kind"], event["status"], len(event["ids"])) == ("posts_by_ids", "success", 3)
    failed = small_collector.ok("hydrate", "events", "--status", "error", "--json").json["ingests"]
    assert [each["kind"] for each in failed] == ["users_by_ids"] * 2


def test_hydration_in_the_background_is_left_to_the_workers(small_collector: CommandLine, sim: Sim) -> None:
    truth = sim.account(sim.ask("accounts")["handles"][0])
    small_collector.ok("hydrate", "users", truth["user_id"])
    told = small_collector.ok("hydrate", "users", truth["user_id"], NOBODY, "--background", "--json").json
    assert (told["jobs"]["created"], told["present"]) == (1, [truth["user_id"]])
    small_collector.ok("hydrate", "posts", *truth["search"][:2], "--background")
    assert "no gaps" in small_collector.ok("work", "--until-idle").out
    assert {int(each) for each in truth["search"][:2]} <= stored(small_collector, truth["user_id"])
    assert small_collector.sql("SELECT id FROM jobs") == []
    assert small_collector.sql("SELECT what, id FROM missing") == [{"what": "user", "id": int(NOBODY)}]


def test_a_source_that_does_not_answer_is_one_line_and_nothing_is_written(small_collector: CommandLine) -> None:
    told = small_collector("hydrate", "users", "7", MISTNET_X_BASE_URL="http://127.0.0.1:9")
    assert (told.code, told.out) == (1, "")
    assert "x gave no whole answer" in told.err
    assert told.err.splitlines()[-1].endswith("; nothing was written")
    assert small_collector.sql("SELECT id FROM users") == []


def test_a_file_of_suggestions_is_taken_as_far_as_it_is_good(small_collector: CommandLine) -> None:
    rows = "handle,wallet,team\n@Ann,0x1,red\nnot a handle,0x2,\nhttps://x.com/bea,,blue\nANN,0x3,\n"
    told = small_collector("suggest", "--file", "-", "--wallet", "0x9", "--json", stdin=rows)
    assert told.code == 2
    assert [each["handle"] for each in told.json["suggestions"]] == ["Ann", "bea"]
    assert [each["place"] for each in told.json["refused"]] == ["- line 3"]
    assert "- line 3: 'not a handle': a handle has 1 to 15 letters, digits or _" in told.err
    kept = small_collector.sql(
        "SELECT handle, wallet, CAST(labels AS text) AS labels FROM suggestions ORDER BY handle_key"
    )
    assert [(row["handle"], row["wallet"], json.loads(row["labels"])) for row in kept] == [
        ("Ann", "0x3", {"team": "red"}),  # said twice: what comes later counts
        ("bea", "0x9", {"team": "blue"}),
    ]


SLIPS = (
    (("track",), ""),
    (("track", "not-a-handle"), ""),
    (("track", "--quote", "--by-id", "7"), ""),
    (("track", "--by-id", "ann"), ""),
    (("track", "--file", "nowhere"), ""),
    (("suggest", "ann", "--label", "red"), ""),
    (("untrack", "nobody_at_all"), ""),
    (("untrack", "--by-id", "0"), ""),
    (("hydrate", "users"), ""),
    (("hydrate", "posts", "7", "x"), ""),
    (("hydrate", "users", "7", "--force", "--background"), ""),
)


def test_bad_input_is_one_line_with_the_next_step(on_sqlite: CommandLine) -> None:
    on_sqlite.settings |= QUICK
    assert list_misreported(on_sqlite, SLIPS) == []
