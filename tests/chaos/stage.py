"""The real processes of a play: started again when a fault killed them, and asked for their exit codes at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Final

from tests.warm import SOURCES, WarmProcess
from tests.worlds import KEY

SETTINGS: Final = {
    "MISTNET_LEASE_SECONDS": "6",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "0.5",
    "MISTNET_IDLE_POLL_SECONDS": "0.5",
    "MISTNET_LEADER_LEASE_SECONDS": "4",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_SECOND_LOOK_SECONDS": "0.5",
    "MISTNET_BATCH_FILL_SECONDS": "0.2",
    "MISTNET_BREAKER_SECONDS": "0.5",
    "MISTNET_MAX_ATTEMPTS": "1000",
    "MISTNET_X_API_KEY": KEY,
    "MISTNET_LOG_LEVEL": "WARNING",
    "MISTNET_SCHEDULER_ENABLED": "false",
}
STOP_SECONDS: Final = 240.0
ALONE: Final = {
    "up": ("up", "--port", "0", "--concurrency", "3"),
    "worker": ("work", "--concurrency", "3"),
}
"""Processes that need nothing but a database."""


@dataclass
class Life:
    """What became of all processes of one name."""

    name: str
    started: int = 0
    killed: int = 0
    ended: list[int] = field(default_factory=list)
    """Exit codes of those that ended although no fault killed them."""
    at_stop: int | None = None


@dataclass
class Stage:
    """A world, a database, and the processes that collect the one into the other."""

    url: str
    base_url: str
    folder: Path
    seed: int
    pace: int
    commands: Mapping[str, Sequence[str]] = field(default_factory=lambda: ALONE)
    settings: Mapping[str, str] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    _running: dict[str, WarmProcess[str]] = field(default_factory=dict)

    def start(self) -> None:
        for name in self.commands:
            self._start(name)

    def _start(self, name: str) -> None:
        """What it says goes through a pipe: it can be said while the process cannot write to files."""
        process = self._process(*self.commands[name])
        self._running[name] = process
        self.lives.setdefault(name, Life(name)).started += 1
        threading.Thread(target=self._keep, args=(process, self._log(name)), daemon=True).start()

    def _process(self, *arguments: str) -> WarmProcess[str]:
        command = [sys.executable, "-m", "mistnet", *arguments]
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        return WarmProcess(command, cwd=self.folder, env=self.environment, stdout=pipe, stderr=out, text=True)

    @staticmethod
    def _keep(process: WarmProcess[str], log: Path) -> None:
        assert process.stdout is not None
        with log.open("a", encoding="utf-8") as kept, process.stdout as said:
            for line in said:
                kept.write(line)
                kept.flush()

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}
        own = {"MISTNET_DATABASE_URL": self.url, "MISTNET_X_BASE_URL": self.base_url, "PYTHONPATH": SOURCES}
        pace = {"MISTNET_X_RATE_PER_MINUTE": str(self.pace)}
        return {**inherited, **SETTINGS, **own, **pace, **self.settings}

    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values() if process.poll() is None]

    def revive(self) -> list[str]:
        """Start what was killed by a fault again; name what ended by itself."""
        ended = []
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            if code == -SIGKILL:
                self.lives[name].killed += 1
            else:
                self.lives[name].ended.append(code)
                ended.append(f"{name} ended by itself with {code}: {self.said(name)[-500:]}")
            self._start(name)
        return ended

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: str) -> str:
        log = self._log(name)
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def outages(self) -> int:
        """How often a process has said that the database fails."""
        return sum(self.said(name).count("the database fails") for name in self.commands)

    def command(self, *arguments: str) -> None:
        with self._process(*arguments) as process:
            out, _ = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0, out

    def stop(self) -> list[str]:
        """Ask all to stop. Every one must end with 0."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        problems = []
        for name, process in self._running.items():
            code = self.lives[name].at_stop = process.wait(STOP_SECONDS)
            if code != 0:
                problems.append(f"{name} ended with {code} when it was stopped: {self.said(name)[-500:]}")
        return problems

    def kill(self) -> None:
        """Leave no process behind, however the play ended."""
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
