"""`--help`, shell completion, and the example of each command."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from mistnet.__main__ import run
from mistnet.cli.main import app
from scripts.generate_cli_docs import commands

ROOT: Any = typer.main.get_command(app)
ALL = [(path, command) for path, command in commands(ROOT, "mistnet") if not hasattr(command, "commands")]
GROUPS = [path for path, command in commands(ROOT, "mistnet") if hasattr(command, "commands")]
PURPOSES = ["Collect:", "Look:", "Export:", "Prices:", "Operate:"]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_first_help_has_a_panel_for_each_purpose_and_one_line_for_each_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == shown
    assert [line for line in shown.splitlines() if line in PURPOSES] == PURPOSES
    listed = shown[shown.index("Collect:") : shown.index("Options:")]
    assert re.findall(r"^  (\w+)  ", listed, re.MULTILINE) == [
        name for title in PURPOSES for name in ROOT.commands if ROOT.commands[name].rich_help_panel == title[:-1]
    ]
    assert "\n    " not in listed  # nothing is wrapped
    assert len(ROOT.commands) > 25


@pytest.mark.parametrize("path", GROUPS[1:])
def test_a_group_without_a_command_never_fails_without_a_word(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = path.removeprefix("mistnet ")
    if "list" in typed(group.split()).commands and group in ("tokens", "alerts", "sources"):
        return  # these list
    assert run(group.split()) == 0
    assert capsys.readouterr().out.startswith(f"Usage: {path} COMMAND")


def typed(words: list[str]) -> Any:
    found = ROOT
    for each in words:
        found = found.commands[each]
    return found


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_the_example_of_a_command_is_a_call_that_it_accepts(
    path: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mistnet-backup.db").touch()
    words = shlex.split(command.epilog.removeprefix("Example: "))
    name = path.split()
    assert words[: len(name)] == name
    command.make_context(path, words[len(name) :])


@pytest.mark.parametrize("path", [path for path, _ in ALL])
def test_help_names_no_type_beside_a_flag_and_fits_the_terminal(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    assert "<bool>" not in shown
    assert "  --json " in shown
    assert "Example:\n  mistnet " in shown
    assert [line for line in shown.splitlines() if line.endswith("-")] == [], "no option is broken into lines"
    assert [line for line in shown.splitlines() if len(line) > 80 and "mistnet " not in line] == []


@pytest.mark.parametrize("path", [path for path, _ in commands(ROOT, "mistnet")])
def test_no_error_is_without_words(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path.split()[1:], "--nonsense"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"mistnet: error: No such option: --nonsense.*\n", told.err), told.err


def completions(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    monkeypatch.setenv("_MISTNET_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        run([])
    return iter(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("mistnet tra", ["track"]),
        ("mistnet jobs re", ["requeue", "resume", "retry"]),
        ("mistnet track --qu", ["--quote"]),
        ("mistnet jobs list --state de", ["dead"]),
    ],
)
def test_the_shell_completes_commands_options_and_choices(
    line: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(completions(line, monkeypatch, capsys)) == wanted


def test_completion_is_installed_where_the_shell_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "bash")
    with pytest.raises(SystemExit) as ended:
        run(["--install-completion"])
    assert ended.value.code == 0
    assert "bash completion installed" in capsys.readouterr().out
    (script,) = re.findall(r"^source '(.+)'$", (tmp_path / ".bashrc").read_text(), re.MULTILINE)
    assert Path(script).is_relative_to(tmp_path)
    assert "complete -o default -F _mistnet_completion mistnet" in Path(script).read_text()
