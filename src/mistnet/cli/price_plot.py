"""A price course as lines of text, with marks below it where posts were."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mistnet.domain.lineage import Promotion, SeenPrice

HEIGHT: Final = 8
_LEAST_WIDTH: Final = 20
_LEAST_SPAN: Final = timedelta(hours=1)
_MANY: Final = 9


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """What lines are drawn with."""

    level: str
    rise: str
    axis: str
    own: str
    repost: str


FINE: Final = Glyphs(level="─", rise="│", axis="┤", own="▲", repost="△")
PLAIN: Final = Glyphs(level="-", rise="|", axis="|", own="^", repost="r")


class PlottedPost(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    kind: Promotion


def plot(
    course: Sequence[SeenPrice], posts: Sequence[PlottedPost], *, width: int, glyphs: Glyphs = FINE
) -> Sequence[str]:
    """Of the currency that was asked in last; no lines where no amount is known."""
    if not course:
        return []
    currency = course[-1].currency
    own = [each for each in course if each.currency == currency]
    low, high = min(each.amount for each in own), max(each.amount for each in own)
    label = max(len(f"{low:f}"), len(f"{high:f}"))
    room = max(width - label - 2, _LEAST_WIDTH)
    scale = _Scale.over([*(each.observed_at for each in own), own[-1].last_seen_at, *(each.at for each in posts)], room)
    heights = [0 if high == low else round(float((each.amount - low) / (high - low)) * (HEIGHT - 1)) for each in own]
    lines = _drawn(own, heights, scale, glyphs)
    names = {0: f"{low:f}"} | ({HEIGHT - 1: f"{high:f}"} if high != low else {})
    shown = [f"{names.get(place, ''):>{label}} {glyphs.axis}{lines[place]}" for place in range(HEIGHT - 1, -1, -1)]
    below = " " * (label + 2)
    if high == low:
        shown = shown[-1:]
    marks = [f"{below}{_marks(posts, scale, glyphs)}"] if posts else []
    return [
        line.rstrip() for line in (*shown, *marks, f"{below}{scale.words}", _legend(currency, posts, marks, glyphs))
    ]


class _Scale(msgspec.Struct, frozen=True, kw_only=True):
    begin: datetime
    end: datetime
    width: int

    @classmethod
    def over(cls, moments: Sequence[datetime], width: int) -> "_Scale":
        begin = min(moments)
        return cls(begin=begin, end=max(*moments, begin + _LEAST_SPAN), width=width)

    def column(self, at: datetime) -> int:
        return min(int((at - self.begin) / (self.end - self.begin) * self.width), self.width - 1)

    @property
    def words(self) -> str:
        first, last = (f"{each.astimezone(UTC):%Y-%m-%d}" for each in (self.begin, self.end))
        return f"{first}{last:>{max(self.width - len(first), len(last) + 1)}}"


def _drawn(own: Sequence[SeenPrice], heights: Sequence[int], scale: _Scale, glyphs: Glyphs) -> Sequence[str]:
    """An amount holds until the next is seen, and the last for as long as it was seen."""
    paper = [[" "] * scale.width for _ in range(HEIGHT)]
    ends = [*(scale.column(each.observed_at) for each in own[1:]), scale.column(own[-1].last_seen_at) + 1]
    for place, (each, height, end) in enumerate(zip(own, heights, ends, strict=True)):
        begin = scale.column(each.observed_at)
        if place and heights[place - 1] != height:
            between = sorted((heights[place - 1], height))
            for row in range(between[0], between[1] + 1):
                paper[row][begin] = glyphs.rise
            begin += 1
        for column in range(begin, max(end, begin)):
            if column < scale.width:
                paper[height][column] = glyphs.level
    return ["".join(row) for row in paper]


def _marks(posts: Sequence[PlottedPost], scale: _Scale, glyphs: Glyphs) -> str:
    """Where several posts share a place, how many; of more than nine, a +."""
    found: dict[int, list[PlottedPost]] = {}
    for each in posts:
        found.setdefault(scale.column(each.at), []).append(each)
    return "".join(_mark(found.get(column, ()), glyphs) for column in range(scale.width))


def _mark(some: Sequence[PlottedPost], glyphs: Glyphs) -> str:
    match len(some):
        case 0:
            return " "
        case 1:
            return glyphs.repost if some[0].kind is Promotion.REPOST else glyphs.own
        case count:
            return str(count) if count <= _MANY else "+"


def _legend(currency: str, posts: Sequence[PlottedPost], marks: Sequence[str], glyphs: Glyphs) -> str:
    kinds = {each.kind is Promotion.REPOST for each in posts}
    told = [currency, *([f"{glyphs.own} a post"] if False in kinds else [])]
    told += [f"{glyphs.repost} a repost"] if True in kinds else []
    several = any(sign.isdecimal() or sign == "+" for sign in "".join(marks))
    return "   ".join([*told, *(["2-9, + so many posts"] if several else [])])
