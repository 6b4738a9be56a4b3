"""Make the project's Python environment, or find it up to date."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# The system's own Python runs this file, so it keeps to what Python 3.8 understands.
ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
STAMP = ".mistnet-setup"
PROBE = "import sys; print(sys._base_executable, *sys.version_info[:3], sep='\\n')"


class SetupError(Exception):
    """Something a person can put right; the message says how."""


@dataclass(frozen=True)
class Interpreter:
    executable: str
    version: tuple[int, ...]


@dataclass(frozen=True)
class Stamp:
    """What an environment was made from; one that was left half made has no packages yet."""

    packages: str
    project: str


@dataclass(frozen=True)
class Environment:
    folder: Path
    lock: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def stamp(self) -> Path:
        return self.folder / STAMP


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default=".venv", help="the folder to make (%(default)s)")
    parser.add_argument("--lock", default="requirements.lock", help="its packages (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        bring_up_to_date(Environment(ROOT / options.env, ROOT / options.lock))
    except (SetupError, OSError) as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up was interrupted; the next run starts where it must", file=sys.stderr)
        return 130
    return 0


def bring_up_to_date(environment: Environment) -> None:
    if not environment.lock.is_file():
        raise SetupError(f"{environment.lock} is missing; 'make lock' writes it")
    if is_current(environment):
        print("set-up is up to date")
        return
    with alone(environment):
        if is_current(environment):
            print("set-up is up to date")
            return
        if not has_its_packages(environment):
            make_afresh(environment)
        install_project(environment)


def make_afresh(environment: Environment) -> None:
    interpreter = choose_python(candidates(os.environ), probe)
    clear(environment)
    write_stamp(environment, Stamp(packages="", project=""))
    version = ".".join(map(str, interpreter.version))
    with step(f"making {environment.folder.name} with Python {version}"):
        make_environment(interpreter.executable, environment)
    with step(f"installing the packages of {environment.lock.name}"):
        # The lock names every package. Resolving them again could only fail, for a release newer than the lock.
        pip(environment, "--no-deps", "--require-hashes", "-r", str(environment.lock))
    write_stamp(environment, Stamp(packages=packages_digest(environment, interpreter.version), project=""))


def install_project(environment: Environment) -> None:
    digest = project_digest()
    with step("installing mistnet itself"):
        pip(environment, "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    stamp = read_stamp(environment)
    write_stamp(environment, Stamp(packages=stamp.packages if stamp else "", project=digest))


def is_current(environment: Environment) -> bool:
    stamp = read_stamp(environment)
    return stamp is not None and stamp.project == project_digest() and has_its_packages(environment)


def has_its_packages(environment: Environment) -> bool:
    stamp = read_stamp(environment)
    interpreter = probe(environment.python)
    if stamp is None or interpreter is None or interpreter.version[:2] < OLDEST:
        return False
    return stamp.packages == packages_digest(environment, interpreter.version)


def packages_digest(environment: Environment, version: tuple[int, ...]) -> str:
    """The folder counts too: the commands of an environment that was moved point to its old place."""
    facts = f"{environment.folder}\n{version}\n".encode()
    return hashlib.sha256(facts + environment.lock.read_bytes()).hexdigest()


def project_digest() -> str:
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()


def read_stamp(environment: Environment) -> Stamp | None:
    try:
        packages, project = environment.stamp.read_text(encoding="utf-8").split("\n")[:2]
    except (OSError, ValueError):
        return None
    return Stamp(packages, project)


def write_stamp(environment: Environment, stamp: Stamp) -> None:
    environment.folder.mkdir(parents=True, exist_ok=True)
    environment.stamp.write_text(f"{stamp.packages}\n{stamp.project}\n", encoding="utf-8")


def candidates(environ: Mapping[str, str]) -> list[str]:
    chosen = [environ["PYTHON"]] if environ.get("PYTHON") else []
    return [*chosen, "python3", "python3.13", "python3.12", "python3.11"]


def choose_python(names: Sequence[str], look: Callable[[str], Interpreter | None]) -> Interpreter:
    for name in names:
        found = look(name)
        if found is not None and found.version[:2] >= OLDEST:
            return found
    wanted = ".".join(map(str, OLDEST))
    raise SetupError(f"no Python {wanted} or newer among {', '.join(names)}; name one with PYTHON=...")


def probe(name: str) -> Interpreter | None:
    """Ask by running it: a shim may be there and lead nowhere."""
    try:
        answer = run([name, "-IS", "-c", PROBE])
        executable, *version = answer.stdout.splitlines()
        return Interpreter(executable, tuple(int(part) for part in version))
    except (OSError, ValueError):
        return None


def make_environment(python: str, environment: Environment) -> None:
    folder = str(environment.folder)
    if has_modules(python, "venv", "ensurepip"):
        must([python, "-m", "venv", folder])
    elif has_modules(python, "virtualenv"):
        must([python, "-m", "virtualenv", folder])
    elif has_modules(python, "venv"):
        must([python, "-m", "venv", "--without-pip", folder])
        lend_pip(python, environment)
    else:
        raise SetupError(f"{python} cannot make environments; apt-get install python3-venv")


def lend_pip(python: str, environment: Environment) -> None:
    for lender in [python, sys.executable, *candidates(os.environ)]:
        try:
            lent = run([lender, "-m", "pip", "--python", environment.python, "install", "--quiet", "pip"])
        except OSError:
            continue
        if lent.returncode == 0:
            return
    raise SetupError(f"{python} has neither ensurepip nor pip; apt-get install python3-venv")


def has_modules(python: str, *modules: str) -> bool:
    return run([python, "-I", "-c", f"import {', '.join(modules)}"]).returncode == 0


def clear(environment: Environment) -> None:
    folder = environment.folder
    if not folder.exists():
        return
    ours = environment.stamp.exists() or (folder / "pyvenv.cfg").exists() or not any(folder.iterdir())
    if not ours:
        raise SetupError(f"{folder} is there and is no Python environment; move it away")
    shutil.rmtree(folder)


def pip(environment: Environment, *what: str) -> None:
    quietly = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    must([environment.python, "-m", "pip", "install", *quietly, *what])


def must(command: Sequence[str]) -> None:
    done = run(command)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise SetupError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"{what} ...", end=" ", flush=True)
    try:
        yield
    except BaseException:
        print("failed", flush=True)
        raise
    print(f"{time.monotonic() - began:.1f} s", flush=True)


@contextmanager
def alone(environment: Environment) -> Iterator[None]:
    """Two runs at once would write the same files; the lock file itself is what they take turns at."""
    with environment.lock.open("rb") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up to end", flush=True)
            fcntl.flock(turn, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
