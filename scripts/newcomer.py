"""Play a newcomer: an empty folder, a home of its own, Python and the wheel. Print each step and its time."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from playwright.async_api import Page

ROOT: Final = Path(__file__).resolve().parents[1]
TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
ANALYSE: Final = ROOT / "docs" / "analyse.md"
ANALYSTS: Final = ("duckdb", "pandas", "polars", "pyarrow")
HANDLE: Final = "Maya_dev0"  # an account of every simulated world
DEADLINE_SECONDS: Final = 300.0
LARGEST_MEGABYTES: Final = 120  # of a plain installation, compiled by pip
HURRIED: Final = {
    "MISTNET_X_RATE_PER_MINUTE": "100000",
    "MISTNET_SECOND_LOOK_SECONDS": "0.2",
    "MISTNET_BATCH_FILL_SECONDS": "0.2",
}
"""A simulated source needs none of the pauses that a real one does."""
_EXPORTED: Final = re.compile(r"^ +export (MISTNET_X_\w+)=(\S+)$", re.MULTILINE)
_CONSOLE: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INSTALLS: Final = re.compile(r"(python3? -m )?(pip|pipx|uv|venv|brew|apt|apt-get|git|make)\b")
_PLACEHOLDER: Final = re.compile(r"\.\.\.|…")
_SERVES: Final = re.compile(r"\bmistnet (up|serve|sim serve)\b")
_OF_PIP: Final = re.compile(r"pip\b|setuptools\b|pkg_resources|_distutils_hack|distutils-precedence")
_KEEP_STATE: Final = 'eval "$1"; code=$?; { pwd -P; env -0; } > "$2"; exit $code'


class StepFailed(Exception):
    """Something is not as a newcomer is promised."""


@dataclass(kw_only=True)
class Newcomer:
    """Runs commands in a folder. Nothing of the machine's user is in its environment, and `mistnet` is on its path."""

    folder: Path
    environment: dict[str, str]
    dashboard: str = ""
    key: str = ""
    _services: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def at(cls, place: Path, *, programs: Path) -> Self:
        home, folder = place / "home", place / "folder"
        for each in (home, folder):
            each.mkdir(parents=True)
        path = os.pathsep.join([str(programs), "/usr/local/bin", "/usr/bin", "/bin"])
        return cls(folder=folder, environment={"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", **HURRIED})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._services.__exit__(type_, error, trace)

    def run(self, *command: str, code: int = 0) -> str:
        """The output of a command that must end with this exit code; of one that must fail, its complaint."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        if done.returncode != code:
            raise StepFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stderr if code else done.stdout

    def start(self, *command: str, until: str) -> str:
        """Start a service that runs until the newcomer leaves. Returns what it printed, once that has this text."""
        log = Path(tempfile.mkstemp(dir=self.folder.parent, prefix="service-")[1])
        said = " ".join(command)
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._services.enter_context(_stopped(process, said, log))

        def is_up() -> bool:
            if process.poll() is not None:
                raise StepFailed(f"{said} ended with {process.returncode}:\n{log.read_text()}")
            return until in log.read_text()

        wait_for(is_up, f"{said} prints {until!r}")
        return log.read_text()


@contextmanager
def _stopped(process: subprocess.Popen[bytes], said: str, log: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.terminate()
    try:
        code = process.wait(DEADLINE_SECONDS)
    finally:
        process.kill()
    if code != 0:
        raise StepFailed(f"{said} ended with {code} after SIGTERM:\n{log.read_text()}")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise StepFailed(f"waited {DEADLINE_SECONDS:g} s in vain until {what}")
        time.sleep(0.2)


def build(folder: Path) -> Path:
    """The wheel, built from the source distribution as an index would serve it: so both have all files."""
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    _must(*hatchling, "-t", "sdist", cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    _must(*hatchling, "-t", "wheel", cwd=folder / archive.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> None:
    """As `pip install mistnet` does. Nothing may be compiled."""
    _must(sys.executable, "-m", "venv", str(environment))
    add(environment, str(wheel))


def add(environment: Path, *packages: str) -> None:
    pip = (str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _must(*pip, "--only-binary", ":all:", *packages)


def install_linked(wheel: Path, environment: Path) -> None:
    """The same without a package index: what the wheel requires is linked from this Python, and nothing else."""
    _must(sys.executable, "-m", "venv", "--without-pip", str(environment))
    pip = (sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "--disable-pip-version-check")
    _must(*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    (packages,) = environment.glob("lib/python*/site-packages")
    for package in required(requirements(wheel)):
        for file in package.files or ():
            if ".." not in file.parts:
                place = packages / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(str(package.locate_file(file)))


def requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


def required(requirements: Iterable[str]) -> list[Distribution]:
    """The packages of a plain installation, with those that they require in turn."""
    found: dict[tuple[str, str], Distribution] = {}
    waiting = [(Requirement(each), "") for each in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            if (key := (requirement.name.lower(), wanted)) not in found:
                found[key] = distribution(requirement.name)
                waiting += [(Requirement(each), wanted) for each in found[key].requires or ()]
    return list({each.name: each for each in found.values()}.values())


def _must(*command: str, cwd: Path | None = None) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StepFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def megabytes(environment: Path) -> int:
    """The room on the disk that mistnet and its packages take, without pip, which every environment has."""
    (packages,) = environment.glob("lib/python*/site-packages")
    ours = (each for each in packages.iterdir() if not _OF_PIP.match(each.name))
    files = (file for each in ours for file in (each, *each.rglob("*")))
    return sum(file.lstat().st_blocks for file in files) * 512 // 1024**2


def print_version(newcomer: Newcomer) -> str:
    return newcomer.run("mistnet", "--version")


def run_demo(newcomer: Newcomer) -> str:
    said = newcomer.run("mistnet", "demo", "--no-browser")
    if "complete: everything the world shows is stored" not in said:
        raise StepFailed(f"the demo did not collect everything:\n{said}")
    return next(line for line in said.splitlines() if line.startswith("posts"))


def simulate(newcomer: Newcomer) -> str:
    """Serve a simulated source, and set what it says to set."""
    said = newcomer.start("mistnet", "sim", "serve", "--size", "tiny", "--port", "0", until="It also simulates")
    exported = dict(_EXPORTED.findall(said))
    newcomer.key = exported["MISTNET_X_API_KEY"]
    newcomer.environment["MISTNET_X_BASE_URL"] = exported["MISTNET_X_BASE_URL"]
    return newcomer.environment["MISTNET_X_BASE_URL"]


def prepare_folder(newcomer: Newcomer) -> str:
    said = newcomer.run("mistnet", "init", "--key", newcomer.key, "--day-dollars", "2")
    if newcomer.key in said or (newcomer.folder / ".env").stat().st_mode & 0o077:
        raise StepFailed(f"the key is shown, or others may read it:\n{said}")
    return said.splitlines()[0]


def quote(newcomer: Newcomer) -> str:
    said = newcomer.run("mistnet", "track", "--quote", HANDLE)
    if "Nothing is tracked yet" not in said:
        raise StepFailed(f"there is no quote:\n{said}")
    return next(line for line in said.splitlines() if line.startswith(f"@{HANDLE}"))


def track(newcomer: Newcomer) -> str:
    return newcomer.run("mistnet", "track", HANDLE).splitlines()[0]


def serve(newcomer: Newcomer) -> str:
    said = newcomer.start("mistnet", "up", "--port", "0", until="mistnet is at http")
    newcomer.dashboard = said.partition("mistnet is at ")[2].split()[0]
    return newcomer.dashboard


def collect(newcomer: Newcomer) -> str:
    """Wait for the end of the account's history, and read what was collected."""

    def is_complete() -> bool:
        accounts = json.loads(newcomer.run("mistnet", "coverage", "--json"))["accounts"]
        return bool(accounts) and accounts[0]["backfilled_at"] is not None

    wait_for(is_complete, f"the history of @{HANDLE} is complete")
    posts = newcomer.run("mistnet", "export", "posts").splitlines()
    if not posts:
        raise StepFailed("no posts were collected")
    return f"{len(posts):,} posts"


def visit_dashboard(newcomer: Newcomer) -> str:
    """Open the dashboard in Chromium, click every entry and every tab, and follow the link to the account."""
    return asyncio.run(_visit(newcomer.dashboard))


async def _visit(url: str) -> str:
    sys.path[:0] = [str(ROOT)]
    from tests.services.browser import chromium  # noqa: PLC0415 (only this step needs Playwright and a browser)

    problems: list[str] = []
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(DEADLINE_SECONDS * 1_000)
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.on("response", lambda answer: problems.append(answer.url) if answer.status >= 400 else None)
        await page.goto(url)
        seen = [url]
        for entry in await _links(page, "nav.entries a"):
            await page.locator(f'nav.entries a[href="{entry}"]').click()
            for tab in [entry, *(each for each in await _links(page, "nav.sections a") if each != entry)]:
                if tab != entry:
                    await page.locator(f'nav.sections a[href="{tab}"]').click()
                await page.wait_for_url(f"**{tab}")
                if not await page.get_by_role("heading", level=1).first.inner_text():
                    problems.append(f"{tab} has no heading")
                seen.append(tab)
        await page.goto(url)
        await page.get_by_role("link", name=f"@{HANDLE}").first.click()
        heading = await page.get_by_role("heading", level=1).first.inner_text()
    if problems or f"@{HANDLE}" not in heading:
        raise StepFailed(f"the dashboard shows {heading!r}; problems: {problems}")
    return f"{len(seen)} pages, then {heading}"


async def _links(page: Page, selector: str) -> list[str]:
    found: list[str] = await page.locator(selector).evaluate_all("all => all.map(each => each.getAttribute('href'))")
    return found


def analyse(newcomer: Newcomer) -> str:
    """Run the Python of the page on analysis, block by block, while `mistnet up` writes."""
    blocks = [
        block.replace('"birds/"', '"."').replace('"ann"', f'"{HANDLE}"')
        for block in _PYTHON.findall(ANALYSE.read_text(encoding="utf-8"))
    ]
    program = newcomer.folder / "analyse.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    newcomer.run("python", str(program))
    return f"{len(blocks)} blocks"


class Step(NamedTuple):
    """What a newcomer does, and a function that does it and returns one line about what came of it."""

    name: str
    take: Callable[[Newcomer], str]


STEPS: Final = (
    Step("mistnet --version", print_version),
    Step("mistnet demo --no-browser", run_demo),
    Step("mistnet sim serve", simulate),
    Step("mistnet init", prepare_folder),
    Step("mistnet track --quote", quote),
    Step("mistnet track", track),
    Step("mistnet up", serve),
    Step("the history is collected", collect),
)
IN_BROWSER: Final = Step("the dashboard in Chromium", visit_dashboard)
RECIPES: Final = Step(f"{ANALYSE.name}: its Python", analyse)


def console_commands(page: str) -> list[str]:
    """The commands of a page's `console` blocks, except those that install something or hold a placeholder."""
    blocks = (re.sub(r"\\\n(> )?", "", block) for block in _CONSOLE.findall(page))
    lines = (line for block in blocks for line in block.splitlines() if line.startswith("$ "))
    commands = (line.removeprefix("$ ").partition("  #")[0].strip().replace("uvx mistnet", "mistnet") for line in lines)
    return [each for each in commands if not _INSTALLS.match(each) and not _PLACEHOLDER.search(each)]


def follow(command: str, newcomer: Newcomer) -> str:
    """Run a line of a page as a shell would. The folder and the variables that it leaves are those of the next."""
    if _SERVES.search(command):
        newcomer.start("sh", "-c", f"exec {command}", until="http://")
        return ""
    state = Path(tempfile.mkstemp(dir=newcomer.folder.parent, prefix="state-")[1])
    said = newcomer.run("bash", "-c", _KEEP_STATE, "bash", command, str(state))
    folder, _, variables = state.read_text().partition("\n")
    newcomer.folder = Path(folder)
    newcomer.environment = dict(each.split("=", 1) for each in variables.split("\0") if "=" in each)
    return said.strip().splitlines()[-1] if said.strip() else ""


def steps_of(page: Path) -> list[Step]:
    commands = console_commands(page.read_text(encoding="utf-8")) if page.exists() else []
    return [Step(f"{page.name}: {each}", partial(follow, each)) for each in commands]


def take_steps(steps: Iterable[Step], newcomer: Newcomer) -> None:
    with newcomer:
        for each in steps:
            with timed(each.name) as report:
                report(each.take(newcomer))


@contextmanager
def timed(what: str) -> Iterator[Callable[[str], None]]:
    """Print what is done, how long it took, and what the block reports of it."""
    reported: list[str] = []
    began = time.monotonic()
    print(f"{what} ...", end=" ", flush=True)
    try:
        yield reported.append
    except BaseException:
        print("failed", flush=True)
        raise
    about = " ".join("".join(reported).split())
    print(f"{time.monotonic() - began:.1f} s{'; ' * bool(about)}{about}", flush=True)


def meet(place: Path, *, linked: bool, browser: bool, page: Path) -> None:
    """All of it, in an empty folder: build, install, take every step, and follow the page."""
    installed = place / "installed"
    with timed("make dist") as report:
        wheel = build(place)
        report(f"{wheel.name}, {wheel.stat().st_size / 1024**2:.1f} MB")
    with timed("pip install") as report:
        if linked:
            install_linked(wheel, installed)
        else:
            install(wheel, installed)
            report(f"{megabytes(installed)} MB")
            if megabytes(installed) > LARGEST_MEGABYTES:
                raise StepFailed(f"a plain installation takes more than {LARGEST_MEGABYTES} MB")
    if not linked:
        with timed(f"pip install {' '.join(ANALYSTS)}"):
            add(installed, *ANALYSTS)
    programs = installed / "bin"
    more = [*([IN_BROWSER] if browser else []), *([] if linked else [RECIPES])]
    take_steps([*STEPS, *more], Newcomer.at(place / "first", programs=programs))
    with Newcomer.at(place / "second", programs=programs) as reader:
        simulate(reader)
        reader.environment["MISTNET_X_API_KEY"] = reader.key
        take_steps(steps_of(page), reader)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make newcomer", description=__doc__)
    parser.add_argument("--linked", action="store_true", help="take packages from this Python, not from an index")
    parser.add_argument("--no-browser", action="store_true", help="leave the dashboard out")
    parser.add_argument("--page", type=Path, default=TUTORIAL, help="whose commands to follow (%(default)s)")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
            meet(Path(name), linked=given.linked, browser=not given.no_browser, page=given.page)
    except (StepFailed, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
