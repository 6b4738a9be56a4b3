"""Run the tests on all cores and print where the time went."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "tests.timing", "-n", "auto", "--dist", "worksteal", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode


def environment() -> dict[str, str]:
    """Let Python keep its bytecode: otherwise every process a test starts compiles the whole program again."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
