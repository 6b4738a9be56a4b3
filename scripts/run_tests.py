"""Run style, type and import checks and the tests on all cores, then print where the time went.

Style comes first: it takes seconds and fails most often. Types and imports are checked beside the tests.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
STYLE = (["ruff", "check"], ["ruff", "format", "--check"])
BESIDE = (["lint-imports"], ["mypy"])
QUICK = ["tests/unit", "tests/contract", "--no-services"]
PROCESSES = (os.cpu_count() or 1) + 1  # while one waits for a server, another works
SPREAD = ["-n", str(PROCESSES), "--dist", "loadfile", "--no-loadscope-reorder"]
"""Whole files in the order of collection: what a file prepares is prepared once, and cheap tests come first."""


def main(arguments: Sequence[str]) -> int:
    began = time.monotonic()
    quick = "--quick" in arguments
    chosen = [argument for argument in arguments if argument != "--quick"]
    for command in STYLE:
        if code := _run(command):
            return code
    checks = {" ".join(command): _start(command) for command in BESIDE}
    code = _run(["pytest", "-p", "tests.timing", *SPREAD, *(QUICK if quick else ["--prepare-services"]), *chosen])
    failed = [name for name, check in checks.items() if _report(name, check)]
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return code or int(bool(failed))


def environment() -> dict[str, str]:
    """Let Python keep its bytecode: otherwise every process a test starts compiles the whole program again."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def _run(command: Sequence[str]) -> int:
    print(" ".join(command), flush=True)
    return subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, env=environment(), check=False).returncode


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / command[0], *command[1:]],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _report(name: str, check: subprocess.Popen[str]) -> int:
    said, _ = check.communicate()
    print(f"{name}: {said.strip().splitlines()[-1] if not check.returncode else said}", flush=True)
    return check.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
