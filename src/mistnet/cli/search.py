"""The search command: posts by words, author and time, newest first."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.input import Author, Since, Until, argument, option, storable
from mistnet.cli.output import at, document, next_page
from mistnet.kit.text import counted, printable
from mistnet.social.search_query import SearchQuery, parse, pattern
from mistnet.social.store.post_listing import ListedPost, PostSearch, PostSpan, find_authors, read_cursor

if TYPE_CHECKING:
    from rich.console import RenderableType

_COUNTS = {"likes": "like", "replies": "reply", "reposts": "repost", "views": "view"}
_NOTHING = (
    "no posts found: try fewer words, the beginning of one (bitco*), or OR between two; "
    "--author, --since and --until narrow it further"
)


@shared_options
async def search(
    invocation: Invocation,
    query: Annotated[
        str, argument("QUERY", 'Words; "a phrase"; -without; begin*; this OR that. One argument: quote it.')
    ],
    *,
    author: Author = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, option("--limit", None, "How many at most.", min=1, max=10_000)] = 20,
    before: Annotated[str | None, option("--before", "CURSOR", "Only older posts: the next page.")] = None,
) -> None:
    """Find posts by their words, newest first."""
    storable("--author", author)
    try:
        place = None if before is None else read_cursor(before)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--before'") from None
    async with open_database(invocation.settings) as database:
        authors = await find_authors(database, author) if author is not None else None
        span = PostSpan(authors=authors, since=since, until=until)
        page = await PostSearch(database).find(query, span, before=place, limit=limit)
    found, hint = page.items, next_page(page.next)
    if found and invocation.out.on_terminal:
        from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)

        Console().print(on_terminal(found, parse(query)), *hint, sep="\n")
    else:
        posts = [{name: getattr(each, name) for name in _FIELDS} for each in found]
        shown = document(posts=posts, next=str(page.next) if page.next else None)
        invocation.out.show(shown, *(map(plain, found) if found else [_NOTHING]), *hint)


_FIELDS: Final = (
    *("platform", "id", "author_id", "handle", "name", "created_at", "text", "url"),
    *("likes", "replies", "reposts", "views"),
)


def on_terminal(found: Sequence[ListedPost], query: SearchQuery) -> "RenderableType":
    """One block for each post, with the matched words in colour."""
    from rich.console import Group  # noqa: PLC0415 (as above)
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    marks = pattern(query)
    blocks: list[RenderableType] = []
    for post in found:
        text = Text(printable(post.text))
        text.highlight_regex(marks, "bold yellow")
        below = [Text(line, style="dim") for line in _below(post)]
        blocks += [Text(_heading(post), style="bold"), Padding(Group(text, *below), (0, 0, 1, 2))]
    return Group(*blocks)


def plain(post: ListedPost) -> str:
    """The same without colour."""
    lines = [*printable(post.text).splitlines(), *_below(post)]
    return "\n".join([_heading(post), *(f"  {line}" for line in lines)])


def _heading(post: ListedPost) -> str:
    who = f"@{post.handle}" if post.handle else f"user {post.author_id}"
    name = f" ({post.name})" if post.name else ""
    return printable(f"{who}{name} on {post.platform}, {at(post.created_at)} UTC", one_line=True)


def _below(post: ListedPost) -> list[str]:
    numbers = [(getattr(post, many), one, many) for many, one in _COUNTS.items()]
    counts = [counted(number, one, many) for number, one, many in numbers if number is not None]
    return [line for line in (", ".join(counts), printable(post.url or "", one_line=True)) if line]
