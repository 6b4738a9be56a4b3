"""What the doctor says of keys, workers, caps, disk, clock, files and tokens, from facts alone."""

from datetime import timedelta
from pathlib import Path

import pytest

from mistnet.operations import checks, doctor
from tests.support import START

DAY = timedelta(days=1)
GIGABYTE = 1_000_000_000


@pytest.mark.parametrize(
    ("used", "configured", "level"), [(True, False, "warn"), (True, True, "ok"), (False, False, "ok")]
)
def test_a_source_that_is_used_needs_a_key(used: bool, configured: bool, level: str) -> None:
    found = checks.check_key("x", "MISTNET_X_API_KEY", used=used, configured=configured)
    assert found.level == level
    assert ("MISTNET_X_API_KEY" in (found.advice or "")) == (level == "warn")


@pytest.mark.parametrize(
    ("due", "there", "level"), [(3, 0, "warn"), (1, 0, "warn"), (0, 0, "ok"), (3, 1, "ok"), (0, 2, "ok")]
)
def test_work_that_is_due_needs_a_worker(due: int, there: int, level: str) -> None:
    found = checks.check_worker(due=due, there=there)
    assert found.level == level
    assert ("`mistnet work`" in (found.advice or "")) == (level == "warn")
    assert "1 jobs" not in found.found
    assert "1 workers" not in found.found


@pytest.mark.parametrize(("caps", "level"), [([None, None], "warn"), ([200_000, None], "ok"), ([None, 0], "ok")])
def test_a_key_without_a_cap_on_credits_is_told(caps: list[int | None], level: str) -> None:
    found = checks.check_budget("x", caps, configured=True)
    assert found.level == level
    assert checks.check_budget("x", caps, configured=False).level == "ok", "nothing can be spent"


@pytest.mark.parametrize(
    ("free", "level"), [(50 * GIGABYTE, "ok"), (GIGABYTE // 2, "warn"), (50_000_000, "fail"), (0, "fail")]
)
def test_a_disk_that_is_nearly_full_is_told_before_it_is_full(free: int, level: str) -> None:
    found = checks.check_disk(Path("/data"), free=free)
    assert (found.level, "/data" in found.found) == (level, True)


@pytest.mark.parametrize(("ahead", "level"), [(-DAY, "ok"), (timedelta(seconds=2), "ok"), (DAY, "warn")])
def test_what_was_written_in_the_future_shows_that_the_clock_was_set_back(ahead: timedelta, level: str) -> None:
    assert checks.check_clock(START + ahead, START).level == level
    assert checks.check_clock(None, START).level == "ok"


@pytest.mark.parametrize(
    ("left", "refreshed", "level"),
    [
        (-DAY, False, "fail"),
        (3 * DAY, False, "warn"),
        (3 * DAY, True, "ok"),
        (30 * DAY, False, "ok"),
        (None, False, "ok"),
    ],
)
def test_a_token_that_runs_out_is_told_in_time(left: timedelta | None, refreshed: bool, level: str) -> None:
    found = checks.check_token(START + left if left else None, START, refreshed=refreshed)
    assert found.level == level


def test_files_that_others_can_read_are_named(tmp_path: Path) -> None:
    opened, closed = tmp_path / "mistnet.db", tmp_path / "mistnet.toml"
    for file, mode in ((opened, 0o644), (closed, 0o600)):
        file.touch()
        file.chmod(mode)
    assert doctor.is_open_to_others(0o644, [0o755, 0o755])
    assert not doctor.is_open_to_others(0o640, [0o755])
    assert not doctor.is_open_to_others(0o644, [0o700, 0o755]), "no other user can reach it"
    assert not doctor.is_readable_by_others(closed)
    assert not doctor.is_readable_by_others(tmp_path / "nowhere")
    assert checks.check_files([]).level == "ok"
    found = checks.check_files([opened])
    assert (found.level, "mistnet.db" in found.found, "chmod" in (found.advice or "")) == ("warn", True, True)
