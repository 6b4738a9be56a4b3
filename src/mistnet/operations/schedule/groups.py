"""Groups of accounts and their rhythms, as the settings have them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mistnet.kit.errors import SettingsError
from mistnet.operations.schedule.slots import Crontab, Interval, Slots
from mistnet.operations.schedule.store import Members
from mistnet.settings import GroupSettings, Settings
from mistnet.social.errors import BadHandle
from mistnet.social.model import read_handle

DEFAULT: Final = "default"
EVERY: Final = timedelta(minutes=15)
LOOK_EVERY: Final = timedelta(minutes=1)
"""How often a group with a budget looks who of it is due."""

_SOME_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)


class AccountGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Accounts that are looked at together. With `day_credits` each of them has its own time instead."""

    name: str
    members: Members
    slots: Slots
    day_credits: int | None = None

    @property
    def rhythm(self) -> str:
        return f"{self.day_credits} credits a day" if self.day_credits else str(self.slots)


def groups_of(settings: Settings) -> Sequence[AccountGroup]:
    """All groups, `default` last. What cannot be meant is a SettingsError that names the group."""
    given = dict(settings.groups)
    default = given.pop(DEFAULT, None)
    if default and default.accounts:
        raise _wrong(DEFAULT, "it has all accounts that no other group names; leave `accounts` out")
    named = {name: _handles(name, group) for name, group in given.items()}
    _refuse_twice(named)
    groups = [_group(name, given[name], Members(handles=handles)) for name, handles in named.items()]
    others = Members(handles=frozenset().union(*named.values()), all_others=True)
    return [*groups, _group(DEFAULT, default, others)]


def _group(name: str, given: GroupSettings | None, members: Members) -> AccountGroup:
    if given is None:
        return AccountGroup(name=name, members=members, slots=Interval(EVERY))
    if given.day_credits:
        return AccountGroup(name=name, members=members, slots=Interval(LOOK_EVERY), day_credits=given.day_credits)
    return AccountGroup(name=name, members=members, slots=_slots(name, given))


def _slots(name: str, given: GroupSettings) -> Slots:
    if given.every_seconds is not None:
        if given.every_seconds < 1:
            raise _wrong(f"{name}.every_seconds", "must be at least 1")
        return Interval(timedelta(seconds=given.every_seconds))
    try:
        crontab = Crontab(given.cron or "")
    except ValueError as error:
        raise _wrong(f"{name}.cron", f"{given.cron!r} is no crontab line: {error}") from None
    if crontab.after(_SOME_DAY) is None:
        raise _wrong(f"{name}.cron", f"{given.cron!r} names a time that never comes")
    return crontab


def _handles(name: str, given: GroupSettings) -> frozenset[str]:
    if not given.accounts:
        raise _wrong(f"{name}.accounts", f"name its accounts; the group {DEFAULT!r} has those no group names")
    try:
        return frozenset(read_handle(each).lower() for each in given.accounts)
    except BadHandle as error:
        raise _wrong(f"{name}.accounts", str(error)) from None


def _refuse_twice(named: dict[str, frozenset[str]]) -> None:
    owners: dict[str, str] = {}
    for name, handles in named.items():
        for handle in sorted(handles):
            if (owner := owners.setdefault(handle, name)) != name:
                raise _wrong(f"{name}.accounts", f"@{handle} is in the group {owner!r} already")


def _wrong(place: str, problem: str) -> SettingsError:
    return SettingsError(f"groups.{place}", "settings", problem)
