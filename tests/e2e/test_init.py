"""The first command in a new folder."""

import re
import tomllib
from pathlib import Path

import pytest

from mistnet.cli.init import sample, write_new
from mistnet.kit.errors import SettingsError
from mistnet.settings import Settings, load_settings
from tests.e2e.conftest import CommandLine
from tests.terminals import on_terminal

CAP = {"x_day_credits": 200_000}


def test_a_new_folder_is_made_ready_and_nothing_in_it_is_ever_overwritten(on_no_file: CommandLine) -> None:
    file = on_no_file.folder / "mistnet.toml"
    told = on_no_file.ok("init", MISTNET_X_API_KEY="")
    assert "mistnet.toml is written" in told.out
    assert "export MISTNET_X_API_KEY=" in told.out
    assert not (on_no_file.folder / ".env").exists()
    assert "X may cost at most 200,000 credits (US$ 2) a day" in told.out
    assert file.stat().st_mode & 0o077 == 0
    assert on_no_file.ok("db", "check").code == 0

    file.write_text("log_format = 'json'\n")
    again = on_no_file.ok("init", "--json", MISTNET_X_API_KEY="a-key-of-mine").json
    assert (again["written"], again["found"]) == (False, again["now"])
    assert not any("export" in line for line in again["next"])
    assert file.read_text() == "log_format = 'json'\n"


def test_a_database_that_was_named_is_written_down_unless_it_tells_a_password(on_no_file: CommandLine) -> None:
    file = on_no_file.folder / "mistnet.toml"
    on_no_file.ok("init", MISTNET_DATABASE_URL="sqlite:///birds.db")
    assert tomllib.loads(file.read_text()) == {"database_url": "sqlite:///birds.db", **CAP}

    file.unlink()
    told = on_no_file("init", MISTNET_DATABASE_URL="postgresql://ann:hunter2-secret@127.0.0.1:9/birds")
    assert told.code != 0
    assert re.fullmatch(r"mistnet: error: .*\n", told.err), told.err
    assert tomllib.loads(file.read_text()) == CAP
    assert "hunter2" not in file.read_text() + told.out + told.err


def test_a_file_that_cannot_be_written_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere.mistnet\.toml: file: cannot be written: No such file"):
        write_new(tmp_path / "nowhere" / "mistnet.toml", "")


def test_every_line_of_the_sample_can_be_used_as_it_stands() -> None:
    used = "\n".join(re.sub(r"^# (\w+ = )", r"\1", line) for line in sample(None).splitlines())
    wanted = tomllib.loads(used)
    assert len(wanted) > 8
    settings = load_settings(**wanted, broker_url="amqp://127.0.0.1/")  # from the environment, as the sample says
    assert set(wanted) <= set(Settings.model_fields)
    assert settings.crawl_lanes == wanted["crawl_lanes"]


def test_flags_give_the_key_the_budget_and_the_first_accounts(on_no_file: CommandLine) -> None:
    keys = on_no_file.folder / ".env"
    keys.write_text("OTHER=kept\nMISTNET_X_API_KEY=an-old-key\n")
    given = ("--key", "a-key-of-mine", "--day-dollars", "0.5", "@nasa", "esa")
    told = on_no_file.ok("init", *given, MISTNET_LOG_LEVEL="TRACE")
    assert keys.read_text() == "OTHER=kept\nMISTNET_X_API_KEY=a-key-of-mine\n"
    assert keys.stat().st_mode & 0o777 == 0o600
    assert "a-key-of-mine" not in told.out + told.err
    assert "mistnet up " in told.out.splitlines()[-1], "it ends with the next command"
    assert "# " in (on_no_file.folder / "mistnet.toml").read_text()
    assert "@nasa: its profile is looked up" in told.out
    assert "track nasa" not in told.out
    assert "50,000 credits (US$ 0.5) a day" in told.out
    assert on_no_file.sql("SELECT handle FROM suggestions ORDER BY handle") == [{"handle": "esa"}, {"handle": "nasa"}]

    settings = on_no_file.ok("coverage", "--json").json
    assert settings["asked_for"] == ["esa", "nasa"]
    again = on_no_file("init", "--day-dollars", "3")
    assert again.code == 2
    assert "exists already and is kept: change x_day_credits there" in again.err


def test_the_key_is_read_from_standard_input_and_used_by_every_command(on_no_file: CommandLine) -> None:
    assert on_no_file("init", "--key", "-", stdin="a-key-of-mine\n").code == 0
    tracked = on_no_file.ok("track", "nasa", "--json").json
    assert tracked["key_configured"] is True

    (on_no_file.folder / ".env").write_text("SOMEBODY=else\nMISTNET_LOG_LEVEL=LOUD\n")
    assert ".env (MISTNET_LOG_LEVEL): log_level: input should be" in on_no_file("status").err
    (on_no_file.folder / ".env").write_text("MISTNET_LOG_LEVLE=INFO\n")
    assert ".env: MISTNET_LOG_LEVLE: there is no such setting" in on_no_file("status").err


@pytest.mark.parametrize("key", ["two words", "a#b", "it's"])
def test_what_cannot_be_a_key_is_refused_before_anything_is_written(key: str, on_no_file: CommandLine) -> None:
    told = on_no_file("init", "--key", key)
    assert (told.code, key in told.err) == (2, False)
    assert list(on_no_file.folder.iterdir()) == []


def test_on_a_terminal_what_no_flag_gives_is_asked_and_the_key_is_not_shown(on_no_file: CommandLine) -> None:
    with on_terminal(on_no_file, "init", rows=24, columns=200) as terminal:
        terminal.until("set it later): ", seconds=60)
        terminal.type(b"a-key-of-mine\n")
        terminal.until("US dollars that X may cost in a day [2.0]", seconds=60)
        terminal.type(b"much\n")
        terminal.until("a number from 0.01", "in a day [2.0]")
        terminal.type(b"1.5\n")
        terminal.until("Accounts to track first")
        terminal.type(b"nasa, @esa\n")
        assert terminal.ended() == 0
    assert "150,000 credits (US$ 1.5) a day" in terminal.written
    assert "@esa: its profile is looked up" in terminal.written
    assert "a-key-of-mine" not in terminal.written
    assert (on_no_file.folder / ".env").read_text() == "MISTNET_X_API_KEY=a-key-of-mine\n"


def test_ctrl_c_at_a_question_ends_init_at_once_and_writes_nothing(on_no_file: CommandLine) -> None:
    with on_terminal(on_no_file, "init", rows=24, columns=100) as terminal:
        terminal.until("set it later): ", seconds=60)
        terminal.interrupt()
        assert terminal.ended() == 130
    assert "Traceback" not in terminal.written
    assert list(on_no_file.folder.iterdir()) == []
