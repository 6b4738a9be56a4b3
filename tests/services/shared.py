"""A server that all processes of a test run share: started by the first that needs it, kept by a process of its own.

The keeper starts the server, writes down where it is, and stops it when the run is over, however the run ends.
"""

import fcntl
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Generic, TypeVar

import msgspec

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 700


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, as its keeper wrote it down. `problem`: there is none, and why."""

    keeper: int = 0
    problem: str | None = None


A = TypeVar("A", bound=Address)


class SharedServer(Generic[A]):
    """One server per test run. `module` is run as a program with the state file and the run's process id."""

    def __init__(self, module: str, address: type[A]) -> None:
        self._module = module
        self._address = address
        self._variable = f"MISTNET_TEST_STATE_{module.rpartition('.')[2].upper()}"

    def announce(self) -> None:
        """Called once per run, by the process that outlives all others of it."""
        name = f"mistnet-{os.getpid()}-{secrets.token_hex(3)}.json"
        os.environ[self._variable] = str(Path(tempfile.gettempdir()) / name)

    def retire(self) -> None:
        """Stop the server of this run, if a test needed one."""
        if self._variable not in os.environ:
            return
        path = Path(os.environ.pop(self._variable))
        path.with_suffix(".lock").unlink(missing_ok=True)
        if path.is_file():
            told = self._read(path)
            path.unlink()
            if told.keeper:
                with suppress(ProcessLookupError):
                    os.kill(told.keeper, signal.SIGTERM)

    def address(self) -> A:
        """Where the server of this run is. The first process that asks has it started."""
        path = Path(os.environ[self._variable])
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                self._start(path)
            return self._read(path)

    def _start(self, path: Path) -> None:
        os.posix_spawn(  # it outlives this process, which may be one of several of the run
            sys.executable,
            [sys.executable, "-m", self._module, str(path), path.name.split("-")[1]],
            {**os.environ, "PYTHONPATH": str(ROOT)},
            file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)],
            setsid=True,
        )
        deadline = monotonic() + START_SECONDS
        while not path.is_file() and monotonic() < deadline:
            sleep(0.05)

    def _read(self, path: Path) -> A:
        return msgspec.json.decode(path.read_bytes(), type=self._address)


def keep(server: Callable[[], AbstractContextManager[Address]], failures: tuple[type[Exception], ...]) -> None:
    """The keeper's life: start the server, write down where it is, stop it when the run is over."""
    path, owner = Path(sys.argv[1]), Path("/proc") / sys.argv[2]
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    try:
        with server() as address:
            _write(path, msgspec.structs.replace(address, keeper=os.getpid()))
            while not over.wait(1.0) and owner.exists():
                pass
        path.unlink(missing_ok=True)
    except failures as error:
        _write(path, Address(problem=str(error)))


def _write(path: Path, address: Address) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(address))
    draft.rename(path)
