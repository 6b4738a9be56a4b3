"""A segment's rule as options say it: one of the simple kinds, or JSON for any."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
import typer

from mistnet.cli.input import storable
from mistnet.cli.search import moment
from mistnet.graph.segments.model import AnyRule
from mistnet.graph.segments.rules import read_rule
from mistnet.kit.text import split_list
from mistnet.social.model import read_handle

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SIMPLE: Final = "A simple rule"
_POSTS: Final = "Posts"
_SETS: Final = "Sets of other segments"


def seconds(given: str) -> float:
    """90s, 15m, 6h, 1d, 2w."""
    read = _SPAN.fullmatch(given.strip().lower())
    if read is None:
        raise typer.BadParameter(f"{given[:40]!r} is no span of time; write 15m, 6h, 1d or 2w")
    return float(read[1]) * _UNITS[read[2]]


Who = str | None
Span = float | None


def _who(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="WHO", help=f"{text} @name, or a user's id.", rich_help_panel=_SIMPLE)


def _names(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="A,B,...", help=text, rich_help_panel=_SETS)


JsonRule = Annotated[str | None, typer.Option("--rule", metavar="JSON", help="Any rule, as JSON.")]
Specified = Annotated[
    bool, typer.Option("--specified", help="Users named one by one: `segments inputs`.", rich_help_panel=_SIMPLE)
]
FollowersOf = Annotated[Who, _who("--followers-of", "Who follows")]
FollowedBy = Annotated[Who, _who("--followed-by", "Whom they follow:")]
MutualsOf = Annotated[Who, _who("--mutuals-of", "Who follows and is followed back by")]
UnreciprocatedOf = Annotated[Who, _who("--unreciprocated-of", "Whom they follow without being followed back:")]
Words = Annotated[
    str | None, typer.Option("--query", metavar="QUERY", help="Posts with these words.", rich_help_panel=_POSTS)
]
AuthorsIn = Annotated[
    str | None, typer.Option("--authors-in", metavar="NAME", help="Posts by its members.", rich_help_panel=_POSTS)
]
Link = Annotated[
    str | None,
    typer.Option("--link", metavar="HOST", help="Posts with a link to a host or platform.", rich_help_panel=_POSTS),
]
Since = Annotated[
    datetime | None,
    typer.Option("--since", parser=moment, metavar="TIME", help="Posts from then on.", rich_help_panel=_POSTS),
]
Until = Annotated[
    datetime | None,
    typer.Option("--until", parser=moment, metavar="TIME", help="Posts before then.", rich_help_panel=_POSTS),
]
Within = Annotated[
    Span,
    typer.Option("--within", parser=seconds, metavar="SPAN", help="Posts of the last 6h, 7d.", rich_help_panel=_POSTS),
]
UnionOf = Annotated[list[str] | None, _names("--union", "All of them together.")]
IntersectionOf = Annotated[list[str] | None, _names("--intersection", "What is in each of them.")]
DifferenceOf = Annotated[list[str] | None, _names("--difference", "The first without the others.")]


class RuleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of the rule. Exactly one kind of rule can be said at a time."""

    json: str | None
    specified: bool
    about: Mapping[str, str | None]
    posts: Mapping[str, Any]
    sets: Mapping[str, Sequence[str] | None]

    def rule(self, name: str) -> AnyRule:
        ways = [*self._ways()]
        if len(ways) != 1:
            said = "one kind of rule at a time" if ways else "say how its members are found"
            raise typer.BadParameter(
                f"{said}: --specified, --followers-of, --followed-by, --mutuals-of, --unreciprocated-of, --query and "
                f"the like for posts, --union, --intersection, --difference, or --rule JSON"
            )
        return read_rule(name, ways[0])

    def _ways(self) -> list[str | Mapping[str, Any]]:
        storable("--rule", self.json)
        storable("--query", self.posts.get("query"))
        ways: list[str | Mapping[str, Any]] = [self.json] if self.json is not None else []
        ways += [{"kind": "specified_users"}] if self.specified else []
        ways += [{"kind": kind, "subject": subject(who)} for kind, who in self.about.items() if who is not None]
        posts = {field: said for field, said in self.posts.items() if said is not None}
        ways += [{"kind": "posts", **posts}] if posts else []
        ways += [{"kind": kind, "of": split_list(*names)} for kind, names in self.sets.items() if names]
        return ways


def subject(who: str) -> str:
    """An id as it is; all else is a handle."""
    given = who.strip()
    return given if given.isascii() and given.isdecimal() else f"@{read_handle(given)}"
