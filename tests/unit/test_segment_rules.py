"""Segment rules without any database: read, checked, put in order, said in words, joined as sets are."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.graph.follows.model import Side
from mistnet.graph.segments.model import (
    AnyRule,
    BadSegment,
    Followers,
    SegmentCycle,
    SegmentName,
    What,
)
from mistnet.graph.segments.rules import (
    KINDS,
    PLATFORM_HOSTS,
    handles_in,
    hosts_of,
    in_words,
    needs_of,
    order_of,
    parts_of,
    read_name,
    read_rule,
    what_of,
    with_ids,
)
from mistnet.social.model import UserId

LEAVES = ("a", "b", "c", "d")
ALGEBRA = ("difference", "intersection", "union")


def rule(**said: Any) -> AnyRule:
    return read_rule("a", said)


def rules_of(**said: Mapping[str, Any]) -> dict[SegmentName, AnyRule]:
    return {SegmentName(name): read_rule(name, each) for name, each in said.items()}


@st.composite
def families(draw: st.DrawFn) -> dict[SegmentName, AnyRule]:
    """Rules over some sets and over each other, each over such as were there before."""
    rules: dict[SegmentName, AnyRule] = {SegmentName(name): rule(kind="specified_users") for name in LEAVES}
    for number in range(draw(st.integers(1, 6))):
        names = draw(st.lists(st.sampled_from(sorted(rules)), min_size=2, max_size=4, unique=True))
        kind = draw(st.sampled_from(ALGEBRA))
        rules[SegmentName(f"s{number}")] = rule(kind=kind, of=names)
    return rules


@given(families())
def test_each_comes_after_what_it_builds_on_and_only_once(rules: dict[SegmentName, AnyRule]) -> None:
    top = list(rules)[-1]
    order = order_of(top, rules)
    assert order[-1] == top
    assert len(set(order)) == len(order)
    for place, name in enumerate(order):
        assert set(parts_of(rules[name])) <= set(order[:place])
    assert what_of(top, rules) is What.USERS


@given(families(), st.data())
def test_a_rule_that_leads_back_is_refused_with_a_way_that_is_there(
    rules: dict[SegmentName, AnyRule], data: st.DataObject
) -> None:
    top = list(rules)[-1]
    closing = data.draw(st.sampled_from([name for name in order_of(top, rules) if name != top]))
    rules[closing] = rule(kind="union", of=[top, next(name for name in LEAVES if name not in (closing, top))])
    with pytest.raises(SegmentCycle) as refused:
        order_of(top, rules)
    path = refused.value.path
    assert path[0] == path[-1]
    assert all(path[n + 1] in parts_of(rules[SegmentName(path[n])]) for n in range(len(path) - 1))
    assert " -> ".join(path) in str(refused.value)


def test_a_long_chain_of_segments_needs_no_deep_stack() -> None:
    rules = rules_of(s0={"kind": "specified_users"}, t={"kind": "specified_users"})
    for number in range(1, 5_000):
        rules[SegmentName(f"s{number}")] = rule(kind="union", of=[f"s{number - 1}", "t"])
    assert len(order_of(SegmentName("s4999"), rules)) == 5_001


@pytest.mark.parametrize(
    ("said", "sides"),
    [
        ({"kind": "followers", "subject": "7"}, [Side.FOLLOWERS]),
        ({"kind": "followed", "subject": "7"}, [Side.FOLLOWINGS]),
        ({"kind": "mutuals", "subject": "7"}, [Side.FOLLOWERS, Side.FOLLOWINGS]),
        ({"kind": "unreciprocated_followed", "subject": "7"}, [Side.FOLLOWERS, Side.FOLLOWINGS]),
        ({"kind": "specified_users"}, []),
        ({"kind": "posts", "query": "coin"}, []),
        ({"kind": "union", "of": ["a", "b"]}, []),
    ],
)
def test_each_rule_knows_which_syncs_it_needs(said: dict[str, Any], sides: list[Side]) -> None:
    found = needs_of(rule(**said))
    assert [need.side for need in found] == sides
    assert {need.subject_id for need in found} <= {7}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{", "truncated"),
        ("[]", "Expected"),
        ('{"kind": "nothing"}', "kinds are difference, followed, followers"),
        ('{"subject": "1"}', "kinds are"),
        ('{"kind": "followers"}', "subject"),
        ('{"kind": "followers", "subject": "0"}', "subject"),
        ('{"kind": "followers", "subject": "12\\n"}', "subject"),
        ('{"kind": "followers", "subject": 12}', "Expected `str`"),
        ('{"kind": "followers", "subject": "9999999999999999999"}', "no user has the id"),
        ('{"kind": "followers", "subject": "1", "also": 1}', "unknown field"),
        ('{"kind": "union", "of": ["a"]}', "length >= 2"),
        ('{"kind": "union", "of": ["a", "a"]}', "names 'a' twice"),
        ('{"kind": "union", "of": ["a", "Not A Name"]}', "regex"),
        ('{"kind": "posts"}', "every post"),
        ('{"kind": "posts", "query": "-only"}', "at least one word"),
        ('{"kind": "posts", "query": "a\\u0000b"}', "NUL"),
        ('{"kind": "posts", "link": "nowhere"}', "neither a host"),
        ('{"kind": "posts", "link": "https://example.com"}', "regex"),
        ('{"kind": "posts", "since": "2026-02-01T00:00:00"}', "timezone"),
        ('{"kind": "posts", "since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}', "earlier"),
        ('{"kind": "posts", "within_seconds": 5}', "60"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_says_why(given: str, problem: str) -> None:
    with pytest.raises(BadSegment, match="segment 'a'") as refused:
        read_rule("a", given)
    assert problem in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rule_is_read_back_as_it_was_written_and_has_words(kind: str) -> None:
    about: dict[str, dict[str, Any]] = {"posts": {"query": "coin", "link": "ebay"}, "specified_users": {}}
    about |= {each: {"of": ["b", "c"]} for each in ALGEBRA}
    first = rule(kind=kind, **about.get(kind, {"subject": "12"}))
    assert read_rule("a", msgspec.json.encode(first)) == first
    assert in_words(first)


@pytest.mark.parametrize("name", ["", "A", "1a", "a b", "a" * 65, "a\n", "ä", "-a", "a/b"])
def test_names_that_could_not_stand_in_an_address_are_refused(name: str) -> None:
    with pytest.raises(BadSegment):
        read_name(name)


def test_handles_in_rules_become_ids() -> None:
    said = rule(kind="followers", subject="@Ann")
    assert handles_in(said) == ["Ann"]
    resolved = with_ids(said, {"Ann": UserId(5)})
    assert isinstance(resolved, Followers)
    assert (resolved.subject_id, handles_in(resolved)) == (5, [])
    assert in_words(said) == "followers of @Ann"
    assert in_words(resolved, "@ann") == "followers of @ann"


def test_a_link_is_to_a_platform_or_to_a_host() -> None:
    assert hosts_of("example.com") == ("example.com",)
    assert "ebay.co.uk" in hosts_of("ebay")
    assert hosts_of("nowhere") == ()
    assert all("." in host for hosts in PLATFORM_HOSTS.values() for host in hosts)
