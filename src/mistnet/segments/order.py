"""Which segments a rule builds on, in which order they are worked out, and what that needs of upstream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from mistnet.domain.errors import BadSegment, SegmentCycle
from mistnet.domain.follows import Side
from mistnet.domain.segments import (
    AnyRule,
    Followed,
    Followers,
    Mutuals,
    Need,
    OfSegments,
    PostsWhere,
    SegmentName,
    SpecifiedUsers,
    UnreciprocatedFollowed,
    What,
)
from mistnet.domain.social import Platform


def parts_of(rule: AnyRule) -> Sequence[SegmentName]:
    """The segments a rule names."""
    match rule:
        case OfSegments():
            return [SegmentName(each) for each in rule.of]
        case PostsWhere(authors_in=str(authors)):
            return [SegmentName(authors)]
        case _:
            return []


def needs_of(rule: AnyRule) -> Sequence[Need]:
    """The ingests a rule needs by itself, without those of the segments it names."""
    match rule:
        case Followers():
            sides = [Side.FOLLOWERS]
        case Followed():
            sides = [Side.FOLLOWINGS]
        case Mutuals() | UnreciprocatedFollowed():
            sides = [Side.FOLLOWERS, Side.FOLLOWINGS]
        case _:
            return []
    return [Need(platform=Platform.X, side=side, subject_id=rule.subject_id) for side in sides]


def order_of(name: SegmentName, rules: Mapping[SegmentName, AnyRule]) -> Sequence[SegmentName]:
    """The segment with all it builds on, each after what it builds on itself. Raises SegmentCycle or BadSegment."""
    ordered: dict[SegmentName, None] = {}
    path: list[SegmentName] = []
    waiting: list[tuple[SegmentName, bool]] = [(name, False)]
    while waiting:
        each, parts_are_done = waiting.pop()
        if parts_are_done:
            ordered[path.pop()] = None
        elif each in path:
            raise SegmentCycle([*path[path.index(each) :], each])
        elif each not in ordered:
            path.append(each)
            waiting.append((each, True))
            parts = parts_of(_rule(each, rules, path))
            waiting += [(part, False) for part in reversed(parts)]
    return list(ordered)


def what_of(name: SegmentName, rules: Mapping[SegmentName, AnyRule]) -> What:
    """What its members are. Raises BadSegment where users and posts would be mixed."""
    found: dict[SegmentName, What] = {}
    for each in order_of(name, rules):
        found[each] = _what(each, rules[each], found)
    return found[name]


def _what(name: SegmentName, rule: AnyRule, known: Mapping[SegmentName, What]) -> What:
    match rule:
        case SpecifiedUsers() | Followers() | Followed() | Mutuals() | UnreciprocatedFollowed():
            return What.USERS
        case PostsWhere():
            if rule.authors_in is not None and known[SegmentName(rule.authors_in)] is not What.USERS:
                raise BadSegment(name, f"{rule.authors_in!r} has posts for members, and authors are users")
            return What.POSTS
        case OfSegments():
            return _same(name, {SegmentName(each): known[SegmentName(each)] for each in rule.of})
        case _:
            assert_never(rule)


def _same(name: SegmentName, parts: Mapping[SegmentName, What]) -> What:
    (first, what), *others = parts.items()
    for other, its in others:
        if its is not what:
            raise BadSegment(name, f"{first!r} has {what} for members and {other!r} has {its}: they cannot be mixed")
    return what


def _rule(name: SegmentName, rules: Mapping[SegmentName, AnyRule], path: Sequence[SegmentName]) -> AnyRule:
    try:
        return rules[name]
    except KeyError:
        by = path[-2] if len(path) > 1 else name
        raise BadSegment(by, f"there is no segment {name!r}; define it first") from None
