"""How a command tells what went wrong, and with which exit code it ends."""

from pathlib import Path

import pytest

from mistnet.cli.command import guarded
from mistnet.queue.errors import NoBroker
from mistnet.settings import Settings


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_foreseen_errors_of_parts_that_ran_at_once_are_told_as_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(_settings: Settings) -> int:
        raise ExceptionGroup(
            "parts", [NoBroker("nothing says where"), ExceptionGroup("", [NoBroker("nothing says where")])]
        )

    assert guarded(fail, {}) == 2
    assert capsys.readouterr().err == "mistnet: error: nothing says where; see docs/rabbitmq.md\n"


def test_a_group_with_an_unexpected_error_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(_settings: Settings) -> int:
        raise ExceptionGroup("parts", [NoBroker("nothing says where"), ZeroDivisionError()])

    assert guarded(fail, {}) == 70
    assert "this is a bug in mistnet" in capsys.readouterr().err
