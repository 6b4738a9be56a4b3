"""Every table says for how long it keeps its rows, and the page on it says the same."""

import re
from pathlib import Path

from mistnet.settings import Settings
from tests.retention import RETENTION
from tests.schema import metadata

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upkeep.md"
NEVER_PRUNED = {
    *("posts", "users", "follows", "follow_events", "links", "post_links", "products", "offers", "price_points"),
    *("valuations", "valuation_history", "accounts", "missing", "jobs", "odd_listings", "call_sums"),
}


def test_every_table_says_whether_it_is_pruned() -> None:
    """A new table needs a line in `tests/retention.py`: does it grow with time alone, and what prunes it?"""
    assert sorted(RETENTION) == sorted(metadata.tables)


def test_every_retention_is_a_setting() -> None:
    named = {each.setting for each in RETENTION.values() if each.setting}
    assert named <= Settings.model_fields.keys()


def test_what_was_collected_is_never_pruned() -> None:
    assert {name for name in NEVER_PRUNED if RETENTION[name].setting} == set()


def test_the_page_says_of_every_table_what_prunes_it() -> None:
    lines = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name: (setting, rows) for name, setting, rows in lines if name in RETENTION}
    expected = {
        name: (f"`{each.setting}`" if each.setting else "forever", each.rows) for name, each in RETENTION.items()
    }
    assert listed == expected
