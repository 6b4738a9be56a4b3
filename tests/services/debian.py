"""Debian packages that tests install where they are allowed to: as root, one installation at a time."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

SECONDS = 600


class CannotInstall(Exception):
    """The package is not there and cannot be installed here."""


def ensure(package: str, *, is_there: Callable[[], object], options: Sequence[str] = ()) -> None:
    """Install a package unless its program is there.

    The processes of a test run take turns: apt-get refuses to run twice at once, and a program that is being installed
    may lack its libraries still.
    """
    with (Path(tempfile.gettempdir()) / "mistnet-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_there():
            _install(package, options)
        if not is_there():
            raise CannotInstall(f"apt-get installed {package}, and it is not there")


def _install(package: str, options: Sequence[str]) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotInstall(f"install Debian's package {package}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # services are installed, not started
    for arguments in (["update", "-q"], ["install", "-q", "-y", *options, package]):
        command = ["apt-get", "-o", f"DPkg::Lock::Timeout={SECONDS}", *arguments]
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise CannotInstall(f"`{' '.join(command)}` failed:\n{done.stderr[-1000:]}")
