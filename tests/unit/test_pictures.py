"""Pictures of graphs: the same for the same graph, inside their paper, and quick enough."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mistnet.graph.selection import MOST_NODES, Edges, GraphDot, GraphLine, Sample
from mistnet.social.model import UserId
from mistnet.web.pages.graph_pictures import HEIGHT, WIDTH, draw, layout
from tests.examples import count_examples

PAIRS = some.lists(some.tuples(some.integers(0, 24), some.integers(0, 24)).filter(lambda pair: pair[0] != pair[1]))


@settings(max_examples=count_examples(50))
@given(PAIRS)
def test_every_dot_has_a_place_and_the_same_one_each_time(pairs: list[tuple[int, int]]) -> None:
    spots = layout(25, pairs)
    assert spots == layout(25, pairs)
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in spots)
    assert len(set(spots)) == 25


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_dots_have_places_too(count: int) -> None:
    spots = layout(count, [(0, 1)] if count == 2 else [])
    assert len(spots) == count
    assert all(math.isfinite(each) for spot in spots for each in spot)


def test_those_who_are_connected_stand_nearer_than_those_who_are_not() -> None:
    groups = [range(10), range(10, 20)]
    pairs = [(one, other) for group in groups for one in group for other in group if one < other]
    spots = layout(20, [*pairs, (0, 10)])

    def mean(found: list[tuple[int, int]]) -> float:
        return sum(math.dist(spots[one], spots[other]) for one, other in found) / len(found)

    apart = [(one, other) for one in groups[0] for other in groups[1]]
    assert mean(pairs) < 0.5 * mean(apart)


def sample(dots: int, lines: list[tuple[int, int]]) -> Sample:
    return Sample(
        dots=[GraphDot(user_id=UserId(each), handle=f"user{each}", name=None) for each in range(dots)],
        lines=[GraphLine(source=UserId(one), target=UserId(other), weight=1) for one, other in lines],
        candidates=dots,
    )


def test_a_picture_has_every_dot_on_its_paper_and_one_path_for_each_sort_of_line() -> None:
    picture = draw(sample(4, [(0, 1), (1, 0), (2, 0)]), Edges.FOLLOWS)
    assert (picture.both_ways.count("M"), picture.one_way.count("M"), picture.lines) == (1, 1, 3)
    assert all(0 < dot.x < WIDTH and 0 < dot.y < HEIGHT for dot in picture.dots)
    assert picture.dots[0].told == "@user0: followed by 2 and follows 1 of those drawn"
    assert max(picture.dots, key=lambda dot: dot.radius) is picture.dots[0]
    assert draw(sample(0, []), Edges.REPLIES).dots == []


def test_the_largest_picture_is_drawn_in_a_moment() -> None:
    lines = [
        (one, other)
        for one in range(MOST_NODES)
        for other in range(MOST_NODES)
        if one != other and (one * other) % 7 == 1
    ]
    begun = time.process_time()
    picture = draw(sample(MOST_NODES, lines), Edges.FOLLOWS)
    assert time.process_time() - begun < 3
    assert len(picture.dots) == MOST_NODES
    assert picture.one_way.count("M") + picture.both_ways.count("M") <= 1_500
