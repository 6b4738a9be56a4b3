"""What Python 3.11.2, the oldest that is supported, gets wrong is not used."""

import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"
# Before 3.11.5 and 3.12, such a group that holds a choice or a repetition does not match what it should (gh-106052).
POSSESSIVE_GROUP = re.compile(r"(?<![(\\])\)(?:[*+?]|\{[^{}]*\})\+|\(\?>")


def test_no_pattern_has_a_possessive_group() -> None:
    files = [*SOURCES.rglob("*.py")]
    assert len(files) > 100
    assert [path.name for path in files if POSSESSIVE_GROUP.search(path.read_text(encoding="utf-8"))] == []


def test_a_possessive_group_is_found_and_a_possessive_letter_is_none() -> None:
    assert POSSESSIVE_GROUP.search(r"/\*(?:[^*]|\*(?!/))*+")
    assert not POSSESSIVE_GROUP.search(r"[^\"]*+(?:a)+\)*+")
