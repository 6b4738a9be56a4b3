"""A file system of a few megabytes that tests can fill to the last byte."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEGABYTE = 2**20


class CannotMount(Exception):
    """This process may not mount a file system here."""


class SmallDisk:
    """A mounted folder. `fill` leaves no byte, `free` gives back what `fill` took."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> int:
        """Take every byte that is left; return how many. Called again, it takes what became free since."""
        block, taken = bytes(MEGABYTE), 0
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                taken += ballast.write(block)
        return taken

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


@contextmanager
def small_disk(*, megabytes: int, parent: Path = Path("/tmp")) -> Iterator[SmallDisk]:
    """A disk in memory, unmounted at the end. Raises CannotMount where the system does not permit it."""
    folder = Path(tempfile.mkdtemp(prefix="mistnet-disk-", dir=parent))
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "mistnet-test", str(folder))
        try:
            yield SmallDisk(folder)
        finally:
            _run("umount", "--lazy", str(folder))  # a server that is still ending must not keep it mounted
    finally:
        folder.rmdir()


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotMount(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise CannotMount(f"mounting a file system is not permitted here: {done.stderr.strip()}")
