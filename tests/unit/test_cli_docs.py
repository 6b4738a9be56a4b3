"""The page on commands is written from the commands, and is up to date."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer

from mistnet.cli.main import app
from mistnet.data.model import TableName
from scripts import generate_cli_docs


def test_the_page_on_commands_is_not_stale() -> None:
    written = generate_cli_docs.PAGE.read_text(encoding="utf-8")
    assert written == generate_cli_docs.page(), "run scripts/generate_cli_docs.py"


def test_every_command_and_every_option_is_on_the_page() -> None:
    page = generate_cli_docs.page()
    for command in ("work", "status", "doctor", "demo", "db migrate", "jobs add", "jobs requeue"):
        assert f"## `mistnet {command}" in page
    for option in ("--until-idle", "--before-id", "--fix", "--database-url", "--metrics-port"):
        assert f"`{option}" in page
    assert "--child-of" not in page


ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "mistnet"
CALLED = re.compile(r"(?:`|\$ )(?:python -m )?mistnet ([^`\n]+)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OTHERS = {"--max-response-size"}
"""Flags of other programs: sqld."""


def flags_of(command: Any) -> set[str]:
    options = [each for option in command.params for each in (*option.opts, *option.secondary_opts)]
    return {"--help", *(each for each in options if each.startswith("--"))}


def flags_by_command() -> Mapping[str, set[str]]:
    """The flags of each command by its full name; a group that lists takes those of its list."""
    found = {path: flags_of(each) for path, each in generate_cli_docs.commands(typer.main.get_command(app), "mistnet")}
    return {path: flags | found.get(f"{path} list", set()) for path, flags in found.items()}


def calls_in(text: str) -> Iterator[tuple[str, str]]:
    """Each call of the command that a text shows: what is called, and the whole call."""
    for called in CALLED.finditer(text):
        call = re.split(r" \| | > |; |&&", called[1])[0]
        words = ["mistnet"]
        for word in call.split():
            if " ".join([*words, word]) not in COMMANDS:
                break
            words.append(word)
        yield " ".join(words), call


@cache
def messages() -> tuple[tuple[str, str], ...]:
    """What the code and the pages say to people, by file; read once, for that takes two seconds."""
    return (*_messages_of_code(), *_messages_of_pages())


def _messages_of_code() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        if "sim" not in file.relative_to(SOURCE).parts:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield file.name, node.value
                elif isinstance(node, ast.JoinedStr):
                    yield (
                        file.name,
                        "".join(
                            str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else "X"
                            for part in node.values
                        ),
                    )


def _messages_of_pages() -> Iterator[tuple[str, str]]:
    pages = sorted(SOURCE.rglob("*.html"))
    assert len(pages) > 10
    for file in pages:
        yield file.name, file.read_text(encoding="utf-8").replace("<code>", "`").replace("</code>", "`")


COMMANDS = flags_by_command()


def test_no_message_names_a_flag_that_does_not_exist() -> None:
    known = set().union(*COMMANDS.values()) | OTHERS
    named = [(file, flag, text) for file, text in messages() for flag in FLAG.findall(text)]
    assert len(named) > 100
    assert [f"{file}: {flag} in {text[:80]!r}" for file, flag, text in named if flag not in known] == []


def test_every_call_that_is_shown_has_only_flags_of_its_command() -> None:
    written = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    pages = [(page.name, page.read_text(encoding="utf-8")) for page in written]
    shown = [(file, *called) for file, text in (*messages(), *pages) for called in calls_in(text)]
    assert len(shown) > 300
    wrong = [f"{file}: {call}" for file, command, call in shown if not set(FLAG.findall(call)) <= COMMANDS[command]]
    assert wrong == []


def test_every_export_that_is_shown_is_of_something_that_can_be_exported() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    shown = {name for page in pages for name in re.findall(r"mistnet export ([a-z_]+)", page)}
    assert len(shown) > 5
    assert shown <= {*TableName, "all", "graph", "lineage"}
