"""Starts Python programs from a process that has loaded them already.

A `mistnet` process spends a second of CPU on loading modules before it does anything, and a test run starts about a
hundred. So each test process keeps one that has loaded them and does nothing but fork. What it forks is a process of
its own in every respect that tests care for: it is a child of the test, with its own streams, folder, environment,
signals and exit code, and `kill -9` ends it alone. Tests of the start itself start theirs through the shell's way.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr, Final, NoReturn

_ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = f"{_ROOT / 'src'}{os.pathsep}{_ROOT}"
_MODULES: Final = (
    "aio_pika",
    "aiosqlite",
    "asyncpg",
    "mistnet.app",
    "mistnet.web.application",
    "mistnet.cli.jobs",
    "mistnet.cli.main",
    "mistnet.cli.serve",
    "mistnet.cli.work",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "tests.governed",
    "tests.plugins.toy",
    "uvicorn",
    "uvloop",
)
_PR_SET_CHILD_SUBREAPER: Final = 36
_LONGEST_REQUEST: Final = 1 << 20


class WarmProcess(subprocess.Popen[AnyStr]):
    """`python -m MODULE ARGUMENTS`, forked from a process that has loaded the modules of `mistnet`."""

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        """Take the place of `fork` and `exec`; the order of the arguments is that of CPython's own."""
        folder, environment = rest[4] or Path.cwd(), rest[5] or os.environ
        stdin, _, _, stdout, _, stderr = pipes = rest[9:15]
        streams = [stream if stream >= 0 else own for own, stream in enumerate((stdin, stdout, stderr))]
        self.pid = _parent().fork(args[2:], folder, environment, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # the stubs leave it out


class _Parent:
    """The loaded process, seen from the test."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST_REQUEST)
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from tests.warm import serve; serve({theirs.fileno()})"],
                cwd=_ROOT,
                env={**_without_settings(), "PYTHONPATH": SOURCES},
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def fork(self, words: Sequence[str], folder: Path, environment: Mapping[str, str], streams: list[int]) -> int:
        """Give the id of a new process, which is a child of this one: its real parent ended at once."""
        asked = json.dumps({"words": words, "folder": str(folder), "environment": dict(environment)}).encode()
        self._adopt(orphans=True)
        try:
            socket.send_fds(self._line, [asked], streams)
            return int(self._line.recv(64))
        finally:
            self._adopt(orphans=False)

    def _close(self) -> None:
        self._line.close()
        self._process.wait()

    def _adopt(self, *, orphans: bool) -> None:
        if self._libc.prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


@cache
def _parent() -> _Parent:
    """The loaded process of this test process; started when it is first wanted."""
    return _Parent()


def _without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}


def serve(descriptor: int) -> None:
    """Load the modules, then fork for every request until the test process is gone."""
    for module in _MODULES:
        __import__(module)
    with socket.socket(fileno=descriptor) as line:
        while True:
            asked, streams, _, _ = socket.recv_fds(line, _LONGEST_REQUEST, 3)
            if not asked:
                return
            pid = _orphan()
            if not pid:
                break
            for stream in streams:
                os.close(stream)
            line.send(str(pid).encode())
    _become(json.loads(asked), streams)


def _orphan() -> int:
    """Fork twice. The parent of the new process has ended when this returns its id; in the new one this returns 0."""
    reading, writing = os.pipe()
    between = os.fork()
    if not between:
        pid = os.fork()
        if pid:
            os.write(writing, str(pid).encode())
            os._exit(0)
    os.close(writing)
    if not between:
        os.close(reading)
        return 0
    os.waitpid(between, 0)
    with os.fdopen(reading) as told:
        return int(told.read())


def _become(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    module, *arguments = asked["words"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()
