"""Reads and checks rules, describes them in words, and finds out what they build on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never, get_args

import msgspec

from mistnet.graph.follows.model import Side
from mistnet.graph.segments.model import (
    LONGEST_SECONDS,
    NAME,
    SHORTEST_SECONDS,
    AboutSubject,
    AnyRule,
    BadSegment,
    Difference,
    Followed,
    Followers,
    Intersection,
    Mutuals,
    Need,
    OfSegments,
    PostsWhere,
    SegmentCycle,
    SegmentName,
    SpecifiedUsers,
    Union,
    UnreciprocatedFollowed,
    What,
)
from mistnet.kit.text import read_id
from mistnet.shops.catalog import SHOPS
from mistnet.social.errors import BadSearch
from mistnet.social.model import UserId, X
from mistnet.social.search_query import parse

PLATFORM_HOSTS: Final = {
    "x": ("x.com", "twitter.com"),
    "threads": ("threads.com", "threads.net"),
    **{shop.name: tuple(shop.every_host) for shop in SHOPS},
}
"""A link leads to a platform if its host is one of these or a subdomain of one."""


def hosts_of(link: str) -> Sequence[str]:
    """The hosts of a rule's `link`; none if it is neither a platform nor a host."""
    if link in PLATFORM_HOSTS:
        return PLATFORM_HOSTS[link]
    return (link,) if "." in link else ()


_NAME: Final = re.compile(NAME)
KINDS: Final = tuple(sorted(each.__struct_config__.tag for each in get_args(AnyRule)))


def read_name(given: str) -> SegmentName:
    if not _NAME.fullmatch(given):
        problem = "a name begins with a letter and has up to 64 lower-case letters, digits, dots, dashes or underscores"
        raise BadSegment(given, problem)
    return SegmentName(given)


def read_rule(name: str, given: bytes | str | Mapping[str, Any]) -> AnyRule:
    """A rule from JSON, or from decoded JSON. Raises BadSegment, which says what is wrong and where."""
    try:
        rule: AnyRule
        if isinstance(given, Mapping):
            rule = msgspec.convert(given, AnyRule)
        else:
            rule = msgspec.json.decode(given, type=AnyRule)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        known = f"; kinds are {', '.join(KINDS)}" if "`$.kind`" in str(error) or "`kind`" in str(error) else ""
        raise BadSegment(name, f"its rule cannot be read: {error}{known}") from None
    check_rule(name, rule)
    return rule


def check_rule(name: str, rule: AnyRule) -> None:
    """Check what types cannot express."""
    match rule:
        case AboutSubject() if not rule.subject.startswith("@") and read_id(rule.subject) is None:
            raise BadSegment(name, f"no user has the id {rule.subject[:80]}")
        case OfSegments() if len(set(rule.of)) < len(rule.of):
            twice = next(each for each in rule.of if rule.of.count(each) > 1)
            raise BadSegment(name, f"its rule names {twice!r} twice")
        case PostsWhere():
            if not any(getattr(rule, field) is not None for field in rule.__struct_fields__):
                problem = "its rule would match every post: give authors_in, query, link, since or within_seconds"
                raise BadSegment(name, problem)
            if rule.since is not None and rule.until is not None and rule.since >= rule.until:
                raise BadSegment(name, "since must be earlier than until")
            if rule.query is not None:
                # Refused now, because a stored rule would fail at each materialization.
                if "\x00" in rule.query:
                    raise BadSegment(name, "query: it contains a NUL character, which databases refuse")
                try:
                    parse(rule.query)
                except BadSearch as error:
                    raise BadSegment(name, f"query: {error.problem}") from None
            if rule.link is not None and not hosts_of(rule.link):
                raise BadSegment(
                    name, f"link: {rule.link!r} is neither a host such as example.com nor a known platform"
                )
        case _:
            pass


def check_rhythm(name: str, **seconds: float | None) -> None:
    """Check that schedules and ages are within limits."""
    for field, given in seconds.items():
        if given is not None and not SHORTEST_SECONDS <= given <= LONGEST_SECONDS:
            raise BadSegment(
                name, f"{field} must be between {SHORTEST_SECONDS:,.0f} and {LONGEST_SECONDS:,.0f}, not {given:,.0f}"
            )


def handles_in(rule: AnyRule) -> Sequence[str]:
    """Handles in a rule. They must be replaced by ids before it is stored."""
    if isinstance(rule, AboutSubject) and rule.subject.startswith("@"):
        return [rule.subject.removeprefix("@")]
    return []


def with_ids(rule: AnyRule, ids: Mapping[str, UserId]) -> AnyRule:
    """The rule with ids instead of handles."""
    if not isinstance(rule, AboutSubject) or not rule.subject.startswith("@"):
        return rule
    return msgspec.structs.replace(rule, subject=str(ids[rule.subject.removeprefix("@")]))


_AROUND_SUBJECT: Final[Mapping[type[AboutSubject], str]] = {
    Followers: "followers of {}",
    Followed: "users whom {} follows",
    Mutuals: "users who follow {} and are followed back",
    UnreciprocatedFollowed: "users whom {} follows without being followed back",
}


def in_words(rule: AnyRule, subject: str | None = None) -> str:
    """Describe a rule. `subject` is the name of the user it is about."""
    match rule:
        case SpecifiedUsers():
            return "users named one by one"
        case AboutSubject():
            whom = subject or (rule.subject if rule.subject[0] == "@" else f"user {rule.subject}")
            return _AROUND_SUBJECT[type(rule)].format(whom)
        case PostsWhere():
            parts = (
                f"by authors in {rule.authors_in}" if rule.authors_in else "",
                f"that match {rule.query!r}" if rule.query else "",
                f"with a link to {rule.link}" if rule.link else "",
                f"since {rule.since:%Y-%m-%d %H:%M}" if rule.since else "",
                f"until {rule.until:%Y-%m-%d %H:%M}" if rule.until else "",
                f"of the last {rule.within_seconds / 86_400:g} days" if rule.within_seconds else "",
            )
            return " ".join(["posts", *filter(None, parts)])
        case Union():
            return f"members of any of {_join(rule.of)}"
        case Intersection():
            return f"members of each of {_join(rule.of)}"
        case Difference():
            return f"{rule.of[0]} without {_join(rule.of[1:])}"
        case _:
            assert_never(rule)


def _join(names: Sequence[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def parts_of(rule: AnyRule) -> Sequence[SegmentName]:
    """The segments that a rule names."""
    match rule:
        case OfSegments():
            return [SegmentName(each) for each in rule.of]
        case PostsWhere(authors_in=str(authors)):
            return [SegmentName(authors)]
        case _:
            return []


def needs_of(rule: AnyRule) -> Sequence[Need]:
    """The lists that a rule itself needs, without those of the segments it names."""
    match rule:
        case Followers():
            sides = [Side.FOLLOWERS]
        case Followed():
            sides = [Side.FOLLOWINGS]
        case Mutuals() | UnreciprocatedFollowed():
            sides = [Side.FOLLOWERS, Side.FOLLOWINGS]
        case _:
            return []
    return [Need(platform=X, side=side, subject_id=rule.subject_id) for side in sides]


def order_of(name: SegmentName, rules: Mapping[SegmentName, AnyRule]) -> Sequence[SegmentName]:
    """The segment and everything it builds on, dependencies first. Raises SegmentCycle or BadSegment."""
    ordered: dict[SegmentName, None] = {}
    path: list[SegmentName] = []
    # Without recursion: a chain of segments can be longer than Python's stack is deep.
    waiting: list[tuple[SegmentName, bool]] = [(name, False)]
    while waiting:
        each, parts_are_done = waiting.pop()
        if parts_are_done:
            ordered[path.pop()] = None
        elif each in path:
            raise SegmentCycle([*path[path.index(each) :], each])
        elif each not in ordered:
            if each not in rules:
                raise BadSegment(path[-1] if path else each, f"there is no segment {each!r}; define it first")
            path.append(each)
            waiting.append((each, True))
            waiting += [(part, False) for part in reversed(parts_of(rules[each]))]
    return list(ordered)


def what_of(name: SegmentName, rules: Mapping[SegmentName, AnyRule]) -> What:
    """What its members are. Raises BadSegment if users and posts would be mixed."""
    found: dict[SegmentName, What] = {}
    for each in order_of(name, rules):
        rule = rules[each]
        match rule:
            case SpecifiedUsers() | Followers() | Followed() | Mutuals() | UnreciprocatedFollowed():
                found[each] = What.USERS
            case PostsWhere():
                if rule.authors_in is not None and found[SegmentName(rule.authors_in)] is not What.USERS:
                    raise BadSegment(each, f"{rule.authors_in!r} has posts as members, and authors are users")
                found[each] = What.POSTS
            case Union() | Intersection() | Difference():
                first, *others = [SegmentName(part) for part in rule.of]
                what = found[each] = found[first]
                for other in others:
                    if (its := found[other]) is not what:
                        problem = f"{first!r} has {what} as members and {other!r} has {its}: they cannot be mixed"
                        raise BadSegment(each, problem)
            case _:
                assert_never(rule)
    return found[name]
