"""The commands of a page are found in its blocks and run as a shell would run them."""

import os
from pathlib import Path

import pytest

from scripts.newcomer import Newcomer, StepFailed, console_commands, steps_of, take_steps

PAGE = r"""
# A page

```console
$ pipx install mistnet
$ uvx mistnet demo                  # opens a browser
collected
$ export MISTNET_X_API_KEY=...
$ mistnet track \
>   ann bob
```

    $ not this

```sh
$ nor this
```

```console
$ mkdir box && cd box
```
"""


@pytest.fixture
def person(tmp_path: Path) -> Newcomer:
    return Newcomer.at(tmp_path / "newcomer", programs=tmp_path)


def write(folder: Path, *commands: str) -> Path:
    page = folder / "page.md"
    page.write_text("".join(f"```console\n$ {each}\n```\n\n" for each in commands), encoding="utf-8")
    return page


def test_commands_are_found_without_installations_placeholders_and_output() -> None:
    assert console_commands(PAGE) == ["mistnet demo", "mistnet track   ann bob", "mkdir box && cd box"]


def test_a_command_leaves_its_folder_and_its_variables_to_the_next(
    person: Newcomer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = write(tmp_path, "mkdir box && cd box", "export WHOM='a b'", 'touch "$WHOM" && ls')
    take_steps(steps_of(page), person)
    assert [each.name for each in (tmp_path / "newcomer" / "folder" / "box").iterdir()] == ["a b"]
    first, _, last = capsys.readouterr().out.splitlines()
    assert first.startswith("page.md: mkdir box && cd box ...")
    assert last.endswith("; a b")


def test_a_command_that_fails_ends_the_page(
    person: Newcomer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = write(tmp_path, "echo out; echo why >&2; exit 3", "touch never")
    with pytest.raises(StepFailed, match=r"ended with 3:\nout\nwhy"):
        take_steps(steps_of(page), person)
    assert capsys.readouterr().out.endswith("failed\n")
    assert list(person.folder.iterdir()) == []


def test_a_page_that_is_not_there_has_no_steps(tmp_path: Path) -> None:
    assert steps_of(tmp_path / "tutorial.md") == []


def test_the_environment_holds_nothing_of_the_machines_user(person: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_X_API_KEY", "a-real-key")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert "a-real-key" not in person.run("env")
    assert "PYTHONPATH" not in person.run("env")


def test_a_step_that_fails_leaves_no_service_behind(person: Newcomer) -> None:
    def fail() -> None:
        with person:
            person.start("sh", "-c", "echo $$ > number; echo up; exec sleep 1000", until="up")
            person.run("false")

    with pytest.raises(StepFailed):
        fail()
    with pytest.raises(ProcessLookupError):
        os.kill(int((person.folder / "number").read_text()), 0)
