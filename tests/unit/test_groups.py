"""Groups as the settings have them: everybody in one of them, and a clear word where that cannot be."""

from pathlib import Path
from typing import Any

import pytest

from mistnet.kit.errors import SettingsError
from mistnet.operations.schedule.groups import AccountGroup, groups_of
from mistnet.settings import GroupSettings, load_settings
from tests.unit.test_docs import rows, section

SETTINGS = Path(__file__).parents[2] / "docs" / "settings.md"


def groups(**given: dict[str, Any]) -> dict[str, AccountGroup]:
    return {group.name: group for group in groups_of(load_settings(groups=given))}


def test_without_groups_everybody_is_looked_at_every_quarter_of_an_hour() -> None:
    default = groups()["default"]
    assert default.rhythm == "every 900 s"
    assert default.members.all_others
    assert not default.members.handles


def test_accounts_that_no_group_names_belong_to_default() -> None:
    found = groups(
        news={"accounts": ["@Ann", "https://x.com/bea"], "every_seconds": 60},
        daily={"accounts": ["cy"], "cron": "0 6 * * *"},
    )
    assert list(found) == ["news", "daily", "default"]
    assert found["news"].members.handles == {"ann", "bea"}
    assert found["default"].members.handles == {"ann", "bea", "cy"}
    assert found["default"].members.all_others
    assert found["daily"].rhythm == "cron 0 6 * * *"


def test_default_has_a_rhythm_of_its_own_if_given_one() -> None:
    assert groups(default={"day_credits": 5000})["default"].rhythm == "5000 credits a day"


def test_a_budget_by_day_needs_the_calls_of_a_day() -> None:
    given = {"default": {"day_credits": 5000}}
    with pytest.raises(SettingsError, match="set calls_days to 1 or more"):
        load_settings(groups=given, calls_days=0.5)
    for kept in (0, 1):
        assert load_settings(groups=given, calls_days=kept).calls_days == kept


def test_the_scheduler_can_be_switched_off_by_its_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().scheduler_enabled
    monkeypatch.setenv("SCRAPER_ENABLED", "false")
    assert not load_settings().scheduler_enabled


@pytest.mark.parametrize(
    ("given", "place", "words"),
    [
        ({"news": {"accounts": ["ann"], "cron": "61 * * * *"}}, "groups.news.cron", "not a crontab line"),
        ({"news": {"accounts": ["ann"], "cron": "0 0 30 2 *"}}, "groups.news.cron", "never matches"),
        ({"news": {"accounts": ["ann"], "every_seconds": 0.5}}, "groups.news.every_seconds", "at least 1"),
        ({"news": {"accounts": ["no handle"], "every_seconds": 9}}, "groups.news.accounts", "write @name"),
        ({"news": {"accounts": [], "every_seconds": 9}}, "groups.news.accounts", "name its accounts"),
        ({"default": {"accounts": ["ann"], "every_seconds": 9}}, "groups.default", "leave out `accounts`"),
        (
            {"a": {"accounts": ["ann"], "every_seconds": 9}, "b": {"accounts": ["@ANN"], "every_seconds": 9}},
            "groups.b.accounts",
            "@ann is already in the group 'a'",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_place(given: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        groups(**given)
    assert caught.value.setting == place
    assert words in str(caught.value)


def test_every_setting_of_a_group_is_on_the_page() -> None:
    listed = rows(section(SETTINGS.read_text(encoding="utf-8"), "## One group: `[groups.NAME]`"))
    assert set(listed) == set(GroupSettings.model_fields)
