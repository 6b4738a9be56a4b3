"""Run `mistnet` command lines: in the test's own process, or in a process as a shell starts it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from loguru import logger

from mistnet.__main__ import run
from tests.warm import WarmProcess

ROOT: Final = Path(__file__).parents[1]
DEADLINE_SECONDS: Final = 180.0
"""How long to wait for something that must happen. It only matters when it does not."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_here(arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], stdin: str | None) -> Ran:
    """Run a command in this process. It gets its own folder, environment and streams and leaves nothing behind."""
    with ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write((stdin or "").encode())
        given.seek(0)
        stack.enter_context(_folder(folder))
        stack.enter_context(_environment(environment))
        stack.enter_context(_same_threads_and_signals())
        with _streams(given, out, err, environment.get("PYTHONIOENCODING", "utf-8")):
            code = run(arguments)
        return Ran(code=code, out=_content(out), err=_content(err))


def run_process(arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], stdin: str | None) -> Ran:
    """Run a command in a process of its own."""
    pipe = subprocess.PIPE
    command = command_line(*arguments)
    with WarmProcess(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(stdin, timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    return Ran(code=process.returncode, out=out, err=err)


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mistnet", *arguments]


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _environment(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    _replace_environment(environment)
    try:
        yield
    finally:
        _replace_environment(before)


def _replace_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


@contextmanager
def _same_threads_and_signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    threads = set(threading.enumerate())
    try:
        yield
    finally:
        left = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert left == handlers, "the command left its signal handlers behind"
    assert set(threading.enumerate()) <= threads, "the command left threads behind"


@contextmanager
def _streams(given: IO[bytes], out: IO[bytes], err: IO[bytes], encoding: str) -> Iterator[None]:
    """Standard streams on files, so that they have a descriptor and a byte buffer as those of a process do."""
    name, _, errors = encoding.partition(":")
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(given, encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding=name, errors=errors or "strict")
    sys.stderr = io.TextIOWrapper(err, encoding=name, errors="backslashreplace")
    try:
        yield
    finally:
        logger.remove()  # its sink writes to the stream that is about to go
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for wrapper in (sys.stdin, sys.stdout, sys.stderr):
            wrapper.detach()
        sys.stdin, sys.stdout, sys.stderr = before


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
