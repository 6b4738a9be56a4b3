"""The commands of the tutorials are run as they stand on the page, and print what the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "tutorial.md"
QUEUE: Final = DOCS / "queue-tour.md"
CONSOLE: Final = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ANYTHING: Final = "[...]"


def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path: Path) -> None:
    follow(PAGE, tmp_path, least=7)


def test_the_commands_of_the_tour_of_the_queue_print_what_it_shows(tmp_path: Path) -> None:
    (module,) = re.findall(r"^```python\n(.*?)^```", QUEUE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "my_jobs.py").write_text(module)
    follow(QUEUE, tmp_path, least=3, failing=("strat", "work --until-idle"))


def follow(page: Path, folder: Path, *, least: int, failing: Sequence[str] = ()) -> None:
    """Run the commands of a page in this folder. Those that contain a word of `failing` must fail, and no others."""
    blocks = CONSOLE.findall(page.read_text(encoding="utf-8"))
    assert len(blocks) >= least
    commands = [command for block in blocks for command in commands_of(block)]
    # One shell, as a reader has one: what is exported in one block holds in the next ones.
    negated = ("! " if any(word in command for word in failing) else "" for command, _ in commands)
    lines = (
        f"{mark}{command} || exit 1\necho END-OF-COMMAND" for mark, (command, _) in zip(negated, commands, strict=True)
    )
    bin_folder = str(Path(sys.executable).parent)
    environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "120"}
    if paths := os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] = paths
    ran = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # a terminal shows both
        text=True,
        check=False,
        timeout=300,
    )
    printed = ran.stdout.split("END-OF-COMMAND\n")
    assert ran.returncode == 0, f"{commands[len(printed) - 1][0]}: {printed[-1]}"
    for (command, shown), output in zip(commands, printed, strict=False):
        assert pattern_of(shown).fullmatch(output.rstrip()), (
            f"$ {command}\n{output}\n--- is not what the page shows:\n{shown}"
        )


def test_output_that_differs_from_the_page_is_found() -> None:
    assert pattern_of("3 posts\n[...]\ndone").fullmatch("3 posts\na\nb\ndone")
    assert not pattern_of("3 posts\n[...]\ndone").fullmatch("4 posts\na\nb\ndone")


def commands_of(block: str) -> list[tuple[str, str]]:
    """Each command with the output below it."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    return [(command, shown.rstrip("\n")) for command, shown in zip(parts[1::2], parts[2::2], strict=True)]


def pattern_of(shown: str) -> re.Pattern[str]:
    """What the page shows. `[...]` stands for anything, also for nothing; the width of gaps does not count."""
    literal = ".*?".join(re.sub(r"(\\ )+", r"\\s+", re.escape(part.strip("\n"))) for part in shown.split(ANYTHING))
    return re.compile(rf"\s*{literal}\s*" if literal else ".*", re.DOTALL)
