"""A test that fails beside others is tried once more, alone; one that fails alone too fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[2] / "scripts" / "run_tests.py"
ONCE = """
from pathlib import Path

def test_fine():
    pass

def test_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def ran(folder: Path, content: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(content)
    command = [sys.executable, str(RUNNER), "test_it.py", "-p", "no:cacheprovider"]
    plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"}
    done = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout


def test_what_passes_alone_passes_and_is_named(tmp_path: Path) -> None:
    code, said = ran(tmp_path, ONCE)
    assert code == pytest.ExitCode.OK
    assert "1 failed, 1 passed" in said
    assert "passed at the second try only, with the machine to itself:\n  test_it.py::test_once" in said


@pytest.mark.parametrize("failing", [1, 13])
def test_what_fails_alone_too_or_fails_in_heaps_fails_the_run(tmp_path: Path, failing: int) -> None:
    content = "".join(f"def test_{place}():\n    assert False\n\n" for place in range(failing))
    code, said = ran(tmp_path, content)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said.count(f"{failing} failed") == (3 if failing == 1 else 1)


def test_what_cannot_be_collected_gets_no_second_try(tmp_path: Path) -> None:
    code, said = ran(tmp_path, "import nothing_of_that_name\n")
    assert code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "once more" not in said
