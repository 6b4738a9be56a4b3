"""The services that tests lean on: they start, they answer, they go, and their absence is heard."""

import asyncio
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from scripts import setup
from tests.services import browser, debian
from tests.services.availability import missing_services, unavailable
from tests.services.postgres import (
    PORTS,
    PostgresCluster,
    PostgresStartError,
    _free_port,
    find_binaries,
    wheel_binaries,
)

pytestmark = pytest.mark.starts_servers

ROOT = Path(__file__).parents[2]

OWNER = """
import sys
from tests.services.postgres import PostgresCluster
with PostgresCluster(fast=True) as cluster:
    print(cluster.pid, cluster.folder, flush=True)
    sys.stdin.read()
"""

NEEDY = """
import pytest

def test_one(postgres_dsn): pass
def test_two(postgres_dsn): pass
"""

LAZY = """
import pytest

def test_it(): pytest.skip('too lazy')
def test_other(): pass
"""

LAZY_MODULE = """
import pytest

pytest.skip('too lazy as a whole', allow_module_level=True)
"""

ALLOWED = """
import pytest

def test_corpora(): pytest.skip('corpora: none here')
def test_soak(): pytest.skip('soak: takes an hour')
def test_other(): pass
"""


async def _ask(dsn: str, question: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def _answer(cluster: PostgresCluster, question: str) -> object:
    return asyncio.run(_ask(cluster.dsn(), question))


def _family(pid: int) -> list[int]:
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


async def _durability(dsn: str) -> set[object]:
    return {await _ask(dsn, f"SHOW {setting}") for setting in ("fsync", "synchronous_commit", "full_page_writes")}


@pytest.fixture(scope="module")
def fast_cluster() -> Iterator[PostgresCluster]:
    with PostgresCluster(fast=True) as cluster:
        yield cluster


def test_a_cluster_answers_durably_and_leaves_neither_process_nor_folder() -> None:
    with PostgresCluster() as cluster:
        assert _answer(cluster, "SELECT 1") == 1
        assert asyncio.run(_durability(cluster.dsn())) == {"on"}
        family, folder = _family(cluster.pid), cluster.folder
        assert len(family) > 1
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]
    assert not folder.exists()


def test_a_cluster_runs_without_privileges_on_loopback_alone(fast_cluster: PostgresCluster) -> None:
    assert Path(f"/proc/{fast_cluster.pid}").stat().st_uid != 0
    assert fast_cluster.port in PORTS
    assert fast_cluster.port < 32768
    assert _answer(fast_cluster, "SHOW listen_addresses") == "127.0.0.1"
    assert _answer(fast_cluster, "SHOW unix_socket_directories") == str(fast_cluster.folder)


def test_a_fast_cluster_trades_durability_for_speed(fast_cluster: PostgresCluster) -> None:
    assert asyncio.run(_durability(fast_cluster.dsn())) == {"off"}


@pytest.mark.in_turn(1)
def test_the_binaries_of_the_wheel_serve_too() -> None:
    with PostgresCluster(binaries=wheel_binaries(), fast=True) as cluster:
        assert str(_answer(cluster, "SHOW server_version")).startswith("16.")


@pytest.mark.in_turn(1)
def test_binaries_out_of_reach_are_copied_to_where_the_server_may_read_them(tmp_path: Path) -> None:
    shipped = wheel_binaries()
    assert shipped is not None
    tmp_path.chmod(0o700)
    (tmp_path / "hidden").symlink_to(shipped.parent)
    with PostgresCluster(binaries=tmp_path / "hidden" / "bin", fast=True) as cluster:
        assert _answer(cluster, "SELECT 1") == 1
        assert (cluster.folder / "copy").exists() == (os.geteuid() == 0)


def test_a_killed_owner_takes_its_server_along() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        server = os.pidfd_open(int(pid))
        owner.send_signal(signal.SIGKILL)
    ended, _, _ = select.select([server], [], [], 30)
    if not ended:
        signal.pidfd_send_signal(server, signal.SIGKILL)
    os.close(server)
    shutil.rmtree(folder)
    assert ended


@pytest.mark.in_turn(1)
def test_a_taken_port_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken, free = holder.getsockname()[1], _free_port()
        offers = iter([taken, taken, free])
        monkeypatch.setattr("tests.services.postgres._free_port", lambda: next(offers))
        with PostgresCluster(fast=True) as cluster:
            assert cluster.port == free
            assert _answer(cluster, "SELECT 1") == 1


@pytest.mark.in_turn(1)
def test_a_server_that_cannot_start_says_why_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.postgres.FAST", ("shared_buffers=nonsense",))
    cluster = PostgresCluster(fast=True)
    with pytest.raises(PostgresStartError, match="shared_buffers"):
        cluster.start()
    assert not cluster.folder.exists()


def test_a_named_folder_without_the_programs_is_not_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MISTNET_TEST_PG_BIN", str(tmp_path))
    assert find_binaries() is None
    with pytest.raises(PostgresStartError, match=re.escape(str(tmp_path))):
        PostgresCluster().start()


def test_a_named_folder_with_the_programs_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_TEST_PG_BIN", str(wheel_binaries()))
    assert find_binaries() == wheel_binaries()


def test_the_shared_server_answers(postgres_dsn: str) -> None:
    assert asyncio.run(_ask(postgres_dsn, "SELECT 1")) == 1


def _pytest(folder: Path, *options: str, ci: str = "", **files: str) -> subprocess.CompletedProcess[str]:
    """Run these tests under our conftest, on a machine that has no PostgreSQL."""
    for name, tests in files.items():
        (folder / f"test_{name}.py").write_text(tests)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MISTNET_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-p", "xdist", "-p", "tests.conftest", *options, str(folder)],
        cwd=ROOT,
        env={**kept, "CI": ci, "MISTNET_TEST_PG_BIN": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.in_turn(2)
def test_a_missing_service_is_skipped_at_home_and_named_loudly(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "-n", "1", needy=NEEDY, lazy=LAZY)
    assert done.returncode == pytest.ExitCode.OK
    assert "NOT TESTED on this machine: postgresql (2 tests): MISTNET_TEST_PG_BIN=" in done.stdout
    assert "1 passed, 3 skipped" in done.stdout


@pytest.mark.in_turn(2)
def test_a_missing_service_fails_its_tests_in_ci(tmp_path: Path) -> None:
    done = _pytest(tmp_path, ci="true", needy=NEEDY)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 errors" in done.stdout


@pytest.mark.parametrize(("ci", "outcome"), [("true", "Failed"), ("false", "Skipped"), ("", "Skipped")])
def test_what_is_unavailable_fails_a_test_in_ci_alone(monkeypatch: pytest.MonkeyPatch, ci: str, outcome: str) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(BaseException, match="not available here: redis: no port") as raised:
        unavailable("redis", "no port")
    assert type(raised.value).__name__ == outcome


@pytest.mark.in_turn(2)
def test_unexplained_skips_of_tests_and_modules_fail_the_run_in_ci(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "-n", "1", ci="1", lazy=LAZY, module=LAZY_MODULE)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 skipped: too lazy\n" in done.stdout
    assert "1 skipped: too lazy as a whole\n" in done.stdout
    assert "1 passed, 2 skipped" in done.stdout


@pytest.mark.in_turn(2)
def test_skips_that_say_why_pass_the_run_in_ci(tmp_path: Path) -> None:
    done = _pytest(tmp_path, ci="1", allowed=ALLOWED)
    assert done.returncode == pytest.ExitCode.OK
    assert "1 passed, 2 skipped" in done.stdout


def test_services_are_counted_by_what_they_lack() -> None:
    reasons = ["not available here: redis: no: port", "unrelated", "not available here: redis: no: port"]
    assert [str(missing) for missing in missing_services(reasons)] == [
        "NOT TESTED on this machine: redis (2 tests): no: port"
    ]


def _interpreters(**found: tuple[int, ...]) -> dict[str, setup.Interpreter]:
    return {name: setup.Interpreter(f"/usr/bin/{name}", version) for name, version in found.items()}


def test_the_first_python_that_is_new_enough_is_chosen() -> None:
    found = _interpreters(old=(3, 9, 1), good=(3, 11, 0), newer=(3, 13, 0))
    assert setup.choose_python(["absent", "old", "good", "newer"], found.get) == found["good"]


def test_no_suitable_python_is_said_in_one_line() -> None:
    with pytest.raises(setup.SetupError, match=r"no Python 3\.11 or newer among old; name one") as raised:
        setup.choose_python(["old"], _interpreters(old=(3, 9, 1)).get)
    assert "\n" not in str(raised.value)


def test_a_named_python_comes_first() -> None:
    assert setup.candidates({"PYTHON": "/opt/python"})[0] == "/opt/python"
    assert setup.candidates({"PYTHON": ""})[0] == "python3"


def test_a_shim_that_leads_nowhere_is_no_python(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text("#!/bin/sh\necho 'python3: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert setup.probe(str(shim)) is None
    assert setup.probe(str(tmp_path / "absent")) is None


def test_an_environment_is_made_with_the_python_beneath_another_environment() -> None:
    found = setup.probe(sys.executable)
    assert found is not None
    assert found.version == sys.version_info[:3]
    assert not found.executable.startswith(str(ROOT))


def _environment(folder: Path) -> setup.Environment:
    lock = folder / "requirements.lock"
    lock.write_text("package==1\n")
    environment = setup.Environment(folder / "env", lock)
    (environment.folder / "bin").mkdir(parents=True)
    Path(environment.python).symlink_to(sys.executable)
    return environment


def _stamped(folder: Path) -> setup.Environment:
    environment = _environment(folder)
    packages = setup.packages_digest(environment, sys.version_info[:3])
    setup.write_stamp(environment, setup.Stamp(packages, setup.project_digest()))
    return environment


def test_a_set_up_that_was_done_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup.bring_up_to_date(_stamped(tmp_path))
    assert capsys.readouterr().out == "set-up is up to date\n"


def test_other_packages_call_for_a_new_environment(tmp_path: Path) -> None:
    environment = _stamped(tmp_path)
    environment.lock.write_text("package==2\n")
    assert not setup.has_its_packages(environment)


def test_a_moved_environment_does_not_count_as_installed(tmp_path: Path) -> None:
    environment = _stamped(tmp_path)
    environment.folder.rename(tmp_path / "moved")
    assert not setup.has_its_packages(setup.Environment(tmp_path / "moved", environment.lock))


def test_an_interrupted_set_up_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    environment = _environment(tmp_path)
    assert not setup.is_current(environment)
    setup.write_stamp(environment, setup.Stamp(packages="", project=""))
    assert not setup.has_its_packages(environment)
    packages = setup.packages_digest(environment, sys.version_info[:3])
    setup.write_stamp(environment, setup.Stamp(packages, project=""))
    assert setup.has_its_packages(environment)
    assert not setup.is_current(environment)


def test_an_environment_without_its_python_is_not_current(tmp_path: Path) -> None:
    environment = _stamped(tmp_path)
    Path(environment.python).unlink()
    assert not setup.is_current(environment)


def test_a_folder_that_is_no_environment_is_never_removed(tmp_path: Path) -> None:
    environment = setup.Environment(tmp_path / "home", tmp_path / "requirements.lock")
    environment.folder.mkdir()
    (environment.folder / "letter").touch()
    with pytest.raises(setup.SetupError, match="is no Python environment"):
        setup.clear(environment)
    assert (environment.folder / "letter").exists()


def test_a_missing_lock_file_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["--lock", "no/such.lock"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_another_browser_will_do_where_the_shell_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(package: str, **_: object) -> None:
        raise debian.CannotInstall(f"install Debian's package {package}")

    there = {"google-chrome": "/opt/google-chrome"}
    monkeypatch.delenv("MISTNET_TEST_CHROMIUM", raising=False)
    monkeypatch.setattr(debian, "ensure", refuse)
    monkeypatch.setattr(shutil, "which", there.get)
    assert browser.find_chromium.__wrapped__() == "/opt/google-chrome"
    there.clear()
    with pytest.raises(browser.BrowserMissing, match="chromium-headless-shell, or name a browser"):
        browser.find_chromium.__wrapped__()
