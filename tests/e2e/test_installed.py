"""The wheel in an environment of its own, as a newcomer installs it: all files, the first steps, missing extras."""

import re
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest

from mistnet import __version__
from scripts import newcomer
from scripts.newcomer import STEPS, Newcomer, take_steps

ROOT = Path(__file__).parents[2]
WHEEL = f"mistnet-{__version__}-py3-none-any.whl"
INFO = f"mistnet-{__version__}.dist-info"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source distribution and of the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    assert newcomer.build(folder).name == WHEEL
    return folder


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it requires, without any extra."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    newcomer.install_linked(built / WHEEL, environment)
    return environment / "bin"


@pytest.fixture
def person(programs: Path, tmp_path: Path) -> Iterator[Newcomer]:
    with Newcomer.at(tmp_path / "newcomer", programs=programs) as found:
        yield found


def own_files() -> set[str]:
    """Every file of the package: modules, SQL, templates, what the dashboard serves."""
    package = ROOT / "src" / "mistnet"
    files = (each for each in package.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    return {f"mistnet/{each.relative_to(package)}" for each in files}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / WHEEL) as wheel:
        names = set(wheel.namelist())
        about = message_from_bytes(wheel.read(f"{INFO}/METADATA"))
        entry_points = wheel.read(f"{INFO}/entry_points.txt").decode()
    ours = own_files()
    assert {Path(name).suffix for name in ours} >= {".py", ".sql", ".html", ".css", ".js", ".svg", ".mako", ".typed"}
    assert {name for name in names if not name.startswith(f"{INFO}/")} == ours
    assert f"{INFO}/licenses/LICENSE" in names
    assert "mistnet = mistnet.__main__:main" in entry_points
    assert (about["Name"], about["Version"], about["Requires-Python"]) == ("mistnet", __version__, ">=3.11")
    assert set(about.get_all("Provides-Extra", [])) == {"all", "amqp", "apprise", "otel", "parquet", "postgresql"}


def test_the_source_distribution_has_the_package_and_its_documentation(built: Path) -> None:
    with tarfile.open(built / f"mistnet-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in own_files()} <= names
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "docs/installing.md"} <= names
    assert {name.partition("/")[0] for name in names if "/" in name} == {"src", "docs"}


def test_a_plain_installation_is_small_and_needs_no_compiler(built: Path) -> None:
    packages = newcomer.required(newcomer.requirements(built / WHEEL))
    assert 20 < len(packages) < 60
    files = (Path(str(each.locate_file(file))) for each in packages for file in each.files or ())
    whole = (built / WHEEL).stat().st_size * 4 + sum(each.stat().st_size for each in files if each.exists())
    assert whole < newcomer.LARGEST_MEGABYTES * 1024**2, f"{whole:,} bytes"
    platforms = {
        each.name: tag.rpartition("-")[2]
        for each in packages
        for tag in re.findall(r"^Tag: (\S+)$", each.read_text("WHEEL") or "", re.MULTILINE)
    }
    assert len(platforms) == len(packages)
    # A package that was compiled here would have the bare name of the system, such as linux_x86_64.
    assert {name: tag for name, tag in platforms.items() if tag != "any" and "manylinux" not in tag} == {}


@pytest.mark.in_turn(1)
def test_a_newcomer_gets_from_the_wheel_to_collected_posts(
    person: Newcomer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(person.folder.iterdir()) == []
    take_steps(STEPS, person)
    reported = capsys.readouterr().out.splitlines()
    assert [line.partition(" ...")[0] for line in reported] == [step.name for step in STEPS]
    assert f"mistnet {__version__}" in reported[0]
    assert {each.name for each in person.folder.iterdir()} >= {"mistnet.toml", "mistnet.db"}


@pytest.mark.in_turn(1)
def test_what_needs_a_missing_extra_ends_with_one_line_that_names_it(person: Newcomer) -> None:
    person.run("mistnet", "init")
    wanted = {
        "parquet": (["export", "posts", "--output", "posts.parquet"], {}),
        "postgresql": (["status", "--database-url", "postgresql://ann@127.0.0.1/mistnet"], {}),
        "amqp": (["up", "--port", "0"], {"MISTNET_BROKER_URL": "amqp://127.0.0.1"}),
        "apprise": (["serve", "--port", "0"], {"MISTNET_ALERT_URLS": "json://127.0.0.1"}),
        "otel": (["work"], {"MISTNET_OTEL_ENDPOINT": "http://127.0.0.1:4318"}),
    }
    plain = dict(person.environment)
    for extra, (command, settings) in wanted.items():
        person.environment = {**plain, **settings}
        complaint = person.run("mistnet", *command, code=2)
        assert len(complaint.splitlines()) == 1, complaint
        assert complaint.endswith(f"which is not installed: pip install 'mistnet[{extra}]'\n")
