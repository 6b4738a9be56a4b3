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
from pathlib import Path

import asyncpg
import pytest

from scripts import setup
from tests.services.availability import missing_services
from tests.services.postgres import (
    PORTS,
    PostgresCluster,
    PostgresStartError,
    _free_port,
    find_binaries,
    wheel_binaries,
)

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


def test_a_cluster_answers_and_leaves_neither_process_nor_folder() -> None:
    with PostgresCluster() as cluster:
        assert _answer(cluster, "SELECT 1") == 1
        family, folder = _family(cluster.pid), cluster.folder
        assert len(family) > 1
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]
    assert not folder.exists()


def test_a_cluster_runs_without_privileges_on_loopback_alone() -> None:
    with PostgresCluster(fast=True) as cluster:
        assert Path(f"/proc/{cluster.pid}").stat().st_uid != 0
        assert cluster.port in PORTS
        assert cluster.port < 32768
        assert _answer(cluster, "SHOW listen_addresses") == "127.0.0.1"
        assert _answer(cluster, "SHOW unix_socket_directories") == str(cluster.folder)


@pytest.mark.parametrize(("fast", "durable"), [(False, "on"), (True, "off")])
def test_only_a_fast_cluster_trades_durability_for_speed(fast: bool, durable: str) -> None:
    with PostgresCluster(fast=fast) as cluster:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert _answer(cluster, f"SHOW {setting}") == durable


def test_the_binaries_of_the_wheel_serve_too() -> None:
    with PostgresCluster(binaries=wheel_binaries(), fast=True) as cluster:
        assert str(_answer(cluster, "SHOW server_version")).startswith("16.")


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


def test_a_taken_port_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken, free = holder.getsockname()[1], _free_port()
        offers = iter([taken, taken, free])
        monkeypatch.setattr("tests.services.postgres._free_port", lambda: next(offers))
        with PostgresCluster(fast=True) as cluster:
            assert cluster.port == free
            assert _answer(cluster, "SELECT 1") == 1


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


def _pytest(folder: Path, tests: str, *options: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    """Run these tests under our conftest, on a machine that has no PostgreSQL."""
    (folder / "test_it.py").write_text(tests)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MISTNET_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-p", "tests.conftest", *options, str(folder / "test_it.py")],
        cwd=ROOT,
        env={**kept, "CI": ci, "MISTNET_TEST_PG_BIN": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_missing_service_is_skipped_at_home_and_named_loudly(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = _pytest(tmp_path, NEEDY, *options)
    assert done.returncode == pytest.ExitCode.OK
    assert "NOT TESTED on this machine: postgresql (2 tests): MISTNET_TEST_PG_BIN=" in done.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_missing_service_fails_its_tests_in_ci(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = _pytest(tmp_path, NEEDY, *options, ci="true")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 errors" in done.stdout


@pytest.mark.parametrize(
    ("skip", "ci", "status"),
    [
        ("pytest.skip('too lazy')", "1", pytest.ExitCode.TESTS_FAILED),
        ("pytest.skip('too lazy')", "false", pytest.ExitCode.OK),
        ("pytest.skip('corpora: none here')", "1", pytest.ExitCode.OK),
        ("pytest.skip('soak: takes an hour')", "1", pytest.ExitCode.OK),
    ],
)
def test_an_unexplained_skip_fails_the_run_in_ci_alone(
    tmp_path: Path, skip: str, ci: str, status: pytest.ExitCode
) -> None:
    done = _pytest(tmp_path, f"import pytest\ndef test_it(): {skip}\ndef test_other(): pass\n", ci=ci)
    assert done.returncode == status


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_module_skipped_as_a_whole_fails_the_run_in_ci_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    skipped = "import pytest\npytest.skip('too lazy', allow_module_level=True)\n"
    (tmp_path / "test_other.py").write_text("def test_it(): pass\n")
    done = _pytest(tmp_path, skipped, *options, str(tmp_path / "test_other.py"), ci="1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 skipped: too lazy" in done.stdout


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


def test_a_moved_environment_is_made_anew(tmp_path: Path) -> None:
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


def test_an_environment_whose_python_is_gone_is_made_anew(tmp_path: Path) -> None:
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
