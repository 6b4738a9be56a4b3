"""Groups of accounts as the settings define them, and their rhythms: the slots at which a group is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec
from apscheduler.triggers.cron import CronTrigger

from mistnet.kit.errors import SettingsError
from mistnet.operations.schedule.store import Members
from mistnet.settings import GroupSettings, Settings
from mistnet.social.errors import BadHandle
from mistnet.social.model import read_handle

DEFAULT: Final = "default"
EVERY: Final = timedelta(minutes=15)
LOOK_EVERY: Final = timedelta(minutes=1)
"""How often the scheduler checks which accounts of a group with a budget are due."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SOME_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
_INSTANT: Final = timedelta(microseconds=1)
_LOOK_BACK: Final = timedelta(days=35)
_SPANS: Final = (timedelta(hours=1), timedelta(days=1), _LOOK_BACK, timedelta(days=366), timedelta(days=4 * 366))
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Due(msgspec.Struct, frozen=True):
    """A slot whose time has come. It also stands for the `missed` ones before it, at which no process was running."""

    at: datetime
    missed: int = 0


class Interval(msgspec.Struct, frozen=True):
    """A fixed interval, counted from the epoch, so that all processes agree on the slots, whenever they started."""

    every: timedelta

    def after(self, at: datetime) -> datetime:
        """The next slot later than this moment."""
        return self._slot(self._number(at) + 1)

    def due(self, last: datetime | None, now: datetime) -> Due | None:
        """The latest slot since `last`, up to now. Without a last one, the latest slot before now is due."""
        number = self._number(now)
        if last is None:
            return Due(self._slot(number))
        passed = number - self._number(last)
        return Due(self._slot(number), passed - 1) if passed > 0 else None

    def _number(self, at: datetime) -> int:
        return (at - _EPOCH) // self.every

    def _slot(self, number: int) -> datetime:
        return _EPOCH + number * self.every

    def __str__(self) -> str:
        return f"every {self.every.total_seconds():g} s"


class Crontab:
    """A crontab line. Sunday is 0 or 7. If both kinds of days are given, either may match, as in cron.

    Raises ValueError, which says what is wrong with the line.
    """

    def __init__(self, line: str) -> None:
        self.line = line
        fields = line.split()
        if len(fields) != 5:
            raise ValueError(f"a crontab line has 5 fields, this one has {len(fields)}")
        minute, hour, day, month, weekday = fields
        if not weekday.startswith("*") or "/" in weekday:
            # By their names, because APScheduler counts weekdays from Monday and cron from Sunday.
            numbers = {each for part in weekday.lower().split(",") for each in _days(part)}
            weekday = ",".join(_WEEKDAYS[each] for each in sorted(numbers))
        days = [(day, weekday)]
        if not day.startswith("*") and not weekday.startswith("*"):
            days = [(day, "*"), ("*", weekday)]
        self._triggers = [
            CronTrigger.from_crontab(f"{minute} {hour} {each_day} {month} {each_weekday}", timezone=UTC)
            for each_day, each_weekday in days
        ]

    def after(self, at: datetime) -> datetime | None:
        times = [trigger.get_next_fire_time(None, at + _INSTANT) for trigger in self._triggers]
        return min((each for each in times if each is not None), default=None)

    def due(self, last: datetime | None, now: datetime) -> Due | None:
        """Slots more than five weeks old are not counted."""
        if last is not None:
            slots = self._between(max(last, now - _LOOK_BACK), now)
            return Due(slots[-1], len(slots) - 1) if slots else None
        # Triggers compute forwards only. Short spans come first: four years have two million slots of every minute.
        for span in _SPANS:
            if slots := self._between(now - span, now):
                return Due(slots[-1])
        return None

    def _between(self, last: datetime, now: datetime) -> list[datetime]:
        slots: list[datetime] = []
        slot = self.after(last)
        while slot is not None and slot <= now:
            slots.append(slot)
            slot = self.after(slot)
        return slots

    def __str__(self) -> str:
        return f"cron {self.line}"


Slots: TypeAlias = Interval | Crontab
"""A rhythm in UTC. Every process computes the same slots."""


def _days(part: str) -> list[int]:
    """The weekdays of a part between commas, as cron counts them: Sunday is 0."""
    span, _, step = part.partition("/")
    first, _, last = ("0", "-", "6") if span == "*" else span.partition("-")
    begin = _day(first)
    end = _day(last) if last else (6 if step else begin)
    if step and not (step.isdecimal() and int(step)):
        raise ValueError(f"{part!r} is not a weekday")
    if end < begin:
        end += 7
    return [day % 7 for day in range(begin, end + 1, int(step or 1))]


def _day(word: str) -> int:
    if word in _WEEKDAYS:
        return _WEEKDAYS.index(word)
    if word.isdecimal() and int(word) <= 7:
        return int(word)
    raise ValueError(f"{word!r} is not a weekday; write 0-7 or sun-sat")


class AccountGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Accounts that are updated together. With `day_credits`, each of them has its own times instead."""

    name: str
    members: Members
    slots: Slots
    day_credits: int | None = None

    @property
    def rhythm(self) -> str:
        return f"{self.day_credits} credits a day" if self.day_credits else str(self.slots)


def groups_of(settings: Settings) -> Sequence[AccountGroup]:
    """All groups, `default` last. Raises SettingsError, which names the group that is wrong."""
    given = dict(settings.groups)
    default = given.pop(DEFAULT, None)
    if default and default.accounts:
        raise _wrong(DEFAULT, "it has all accounts that no other group names; leave out `accounts`")
    named: dict[str, frozenset[str]] = {}
    owners: dict[str, str] = {}
    for name, group in given.items():
        if not group.accounts:
            raise _wrong(f"{name}.accounts", f"name its accounts; those of no group are in {DEFAULT!r}")
        try:
            named[name] = frozenset(read_handle(each).lower() for each in group.accounts)
        except BadHandle as error:
            raise _wrong(f"{name}.accounts", str(error)) from None
        for handle in sorted(named[name]):
            if (owner := owners.setdefault(handle, name)) != name:
                raise _wrong(f"{name}.accounts", f"@{handle} is already in the group {owner!r}")
    groups = [_group(name, given[name], Members(handles=handles)) for name, handles in named.items()]
    others = Members(handles=frozenset().union(*named.values()), all_others=True)
    return [*groups, _group(DEFAULT, default, others)]


def _group(name: str, given: GroupSettings | None, members: Members) -> AccountGroup:
    if given is None:
        return AccountGroup(name=name, members=members, slots=Interval(EVERY))
    if given.day_credits:
        return AccountGroup(name=name, members=members, slots=Interval(LOOK_EVERY), day_credits=given.day_credits)
    if given.every_seconds is not None:
        if given.every_seconds < 1:
            raise _wrong(f"{name}.every_seconds", "must be at least 1")
        return AccountGroup(name=name, members=members, slots=Interval(timedelta(seconds=given.every_seconds)))
    try:
        crontab = Crontab(given.cron or "")
    except ValueError as error:
        raise _wrong(f"{name}.cron", f"{given.cron!r} is not a crontab line: {error}") from None
    if crontab.after(_SOME_DAY) is None:
        raise _wrong(f"{name}.cron", f"{given.cron!r} never matches")
    return AccountGroup(name=name, members=members, slots=crontab)


def _wrong(place: str, problem: str) -> SettingsError:
    return SettingsError(f"groups.{place}", "settings", problem)
