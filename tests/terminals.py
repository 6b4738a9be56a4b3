"""Commands on a terminal of their own."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path

from tests.commands import DEADLINE_SECONDS, command_line
from tests.e2e.conftest import CommandLine

LONG_PATIENCE = 480.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ON_THIS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Keys reach those whose terminal it is."""


class Terminal:
    """A command on a terminal of its own, and what it has written there."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self._master = process, master
        self.written = ""

    def until(self, *awaited: str, seconds: float = LONG_PATIENCE) -> str:
        """Reads until all of this has been written since the last call; returns what was."""
        begun, deadline = len(self.written), time.monotonic() + seconds
        while not all(each in self.written[begun:] for each in awaited):
            assert time.monotonic() < deadline, f"{awaited} never came: {self.written[-3000:]}"
            assert self._read(), f"{awaited} never came, the end: {self.written[-3000:]}"
        return self.written[begun:]

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def interrupt(self) -> None:
        """Ctrl-C at a question. Python notices a signal that comes just before it reads only after the answer."""
        status = Path(f"/proc/{self.process.pid}/stat")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, "it never waited for an answer"
            time.sleep(0.01)
        self.type(b"\x03")

    def ended(self) -> int:
        with suppress(AssertionError):
            self.until("never to be seen", seconds=DEADLINE_SECONDS)
        return self.process.wait(timeout=DEADLINE_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return True
        try:
            came = os.read(self._master, 65_536)
        except OSError:  # the other side is closed
            return False
        self.written += ESCAPES.sub("", came.decode(errors="replace"))
        return bool(came)


@contextmanager
def on_terminal(command: CommandLine, *arguments: str, rows: int, columns: int, **settings: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", ON_THIS_TERMINAL, *command_line(*arguments)],
        cwd=command.folder,
        env=command.environment(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows), **settings),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
