"""Items by the commands: from a spreadsheet to questions for sources."""

from pathlib import Path

from tests.e2e.conftest import CommandLine


def test_a_file_of_coins_is_followed_and_asked_for_by_the_command(on_sqlite: CommandLine) -> None:
    on_sqlite.settings = {"MISTNET_PLUGINS": "[]"}
    rows = "\ufeffRef,Title,Year,Currency\r\na,1909-S VDB cent,1909,usd\r\nb,Half dollar,1964,DOLLAR\r\n"
    Path(on_sqlite.folder, "coins.csv").write_text(rows, encoding="utf-8", newline="")
    refused = on_sqlite("items", "import", "coins.csv")
    assert refused.code == 2
    assert "coins.csv line 3: currency 'DOLLAR'" in refused.err
    assert "nothing was written" in refused.out
    taken = on_sqlite("items", "import", "-", "--format", "csv", "--skip-bad", "--json", stdin=rows)
    assert (taken.code, taken.json["added"], taken.json["bad_rows"]) == (3, 1, 1)
    on_sqlite.ok("items", "ask", "1", "--source", "web")
    on_sqlite.ok("work", "--lanes", "web", "--until-idle")
    shown = on_sqlite.ok("items", "show", "1", "--json").json
    assert [(each["source"], each["listings"], each["problem"]) for each in shown["looks"]] == [("web", 0, None)]
    slip = on_sqlite("items", "show", "2")
    assert (slip.code, slip.err.count("\n")) == (2, 1)
