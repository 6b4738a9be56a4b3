"""The first command in a new folder."""

import re
import tomllib
from pathlib import Path

import pytest

from mistnet.cli.init import sample, write_new
from mistnet.kit.errors import SettingsError
from mistnet.settings import Settings, load_settings
from tests.e2e.conftest import CommandLine

CAP = {"x_day_credits": 200_000}


def test_a_new_folder_is_made_ready_and_nothing_in_it_is_ever_overwritten(on_no_file: CommandLine) -> None:
    file = on_no_file.folder / "mistnet.toml"
    told = on_no_file.ok("init", MISTNET_X_API_KEY="")
    assert "mistnet.toml is written" in told.out
    assert "export MISTNET_X_API_KEY=" in told.out
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
