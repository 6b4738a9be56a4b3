"""Write docs/cli.md from the commands themselves, or with --check say whether it is stale."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mistnet.cli.main import LateCommand, app, examples, panels, usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
OPENING = """# Commands

Reference: every command with an example and its options, as `mistnet COMMAND --help` shows them.

<!-- Written by scripts/generate_cli_docs.py; change the commands, then run it again. -->

`mistnet --install-completion` teaches your shell (bash, zsh, fish, PowerShell) to complete commands and options with
Tab. Open a new shell afterwards.

Settings come from a flag, else from the environment (`MISTNET_…`), else from `.env`, else from `mistnet.toml`, else
from their default ([Settings](settings.md)). `--json` prints one JSON document on standard output: ids and amounts are
text, times are in UTC. Logs and errors go to standard error; an error is one line that says what to do. Progress bars
appear only on a terminal.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the database, a source or the work failed; `doctor`, `sources check`, `db check`: something needs attention |
| 2 | wrong usage or settings |
| 3 | gaps: `work --until-idle` left dead or failed jobs, a conversation lacks posts, some ids or accounts failed |
| 4 | `work --until-idle` was stopped by the budget |
| 5 | `work --until-idle` was stopped because a source refuses the key or is paused |
| 70 | a bug in mistnet |
| 124 | `segments materialize --wait`: its time was up; the job stays |
| 130 | interrupted by Ctrl-C |
| 141 | the reader of the output has closed it |
"""


def main(arguments: list[str]) -> int:
    written = page()
    if arguments == ["--check"]:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != written
        if stale:
            print(f"{PAGE} is stale; run scripts/generate_cli_docs.py", file=sys.stderr)
        return int(stale)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(written, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page. Typer's own command objects are walked, so nothing can be left out."""
    root: Any = typer.main.get_command(app)
    some_command = next(command for _, command in commands(root, "mistnet") if not hasattr(command, "commands"))
    parts = [OPENING, *_overview(root), "## Options of every command\n"]
    parts += [table(rows) for title, rows in panels(some_command, context_of(some_command)) if title == "Everywhere"]
    for path, command in commands(root, "mistnet"):
        told = "\n".join(inspect.cleandoc(command.help or "").splitlines())
        parts += [
            f"## `{usage(path, command).removesuffix(' [OPTIONS]')}`\n",
            f"{told}\n",
            *(f"    $ {each}\n" for each in examples(command)),
        ]
        if not hasattr(command, "commands"):
            shown = panels(command, context_of(command))
            own = [row for title, rows in shown if title != "Everywhere" for row in rows]
            parts += [table(own)] if own else []
    return "\n".join(parts)


def context_of(command: Any) -> Any:
    # Without a help option: `--help` need not stand on the page a hundred times.
    return typer.Context(command, help_option_names=[])


def _overview(root: Any) -> Iterator[str]:
    """The commands by purpose, each with a link to its section."""
    for title, rows in panels(root, context_of(root)):
        if title != "Options":
            linked = ((f"[`{name}`](#{anchor(root.commands[name], f'mistnet {name}')})", text) for name, text in rows)
            yield f"## {title}\n"
            yield table(linked, code=False)


def anchor(command: Any, path: str) -> str:
    loaded = command.load() if isinstance(command, LateCommand) else command
    heading = usage(path, loaded).removesuffix(" [OPTIONS]").lower()
    return "".join(each for each in heading if each.isalnum() or each in " -_").replace(" ", "-")


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command.load() if isinstance(command, LateCommand) else command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


def table(rows: Iterable[tuple[str, str]], *, code: bool = True) -> str:
    mark = "`" if code else ""
    lines = [
        f"| {mark}{name.replace('|', ' or ') if code else name}{mark} | {text.replace('|', chr(92) + '|')} |"
        for name, text in rows
    ]
    return "\n".join(["| | |", "|---|---|", *lines, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
