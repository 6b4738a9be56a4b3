"""Commands for the tokens of the API and the dashboard: make one, list them, revoke one."""

from typing import Annotated, Final

import typer
from msgspec.structs import asdict

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import storable
from mistnet.cli.output import Grid, document
from mistnet.kit.text import LARGEST_ID
from mistnet.web.errors import TokenNotFound
from mistnet.web.tokens import Scope, Tokens

_SCOPES: Final = [scope.word for scope in Scope]


def known_scope(given: str) -> str:
    if given not in _SCOPES:
        raise typer.BadParameter(f"there is no scope {given!r}: use {', '.join(_SCOPES)}")
    return given


@shared_options
async def add(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses it.")],
    *,
    scope: Annotated[
        str, typer.Option("--scope", metavar="read|operate|admin", parser=known_scope, help="What it allows.")
    ] = "read",
) -> None:
    """Make a token and print it. It is shown only this once."""
    storable("NAME", name)
    if not name.strip():
        raise typer.BadParameter("give the token a name that says who uses it", param_hint="NAME")
    async with open_app(invocation.settings) as app:
        made, token = await Tokens(app.database).make(name.strip(), Scope.of(scope), now=app.database.clock.now())
    shown = document(id=made.id, name=made.name, scope=scope, token=token)
    invocation.out.show(shown, f"token {made.id} ({made.name}, {scope}), shown only this once:\n{token}")


@shared_options
async def list_tokens(invocation: Invocation) -> None:
    """List all tokens, revoked ones too: who has one, and when it was used last."""
    async with open_app(invocation.settings) as app:
        tokens = await Tokens(app.database).listed()
    rows = [
        (each.id, each.name, each.scope.word, each.created_at, each.last_used_at, each.revoked_at) for each in tokens
    ]
    grid = Grid(
        columns=("id", "name", "scope", "made (UTC)", "last used (UTC)", "revoked (UTC)"),
        rows=rows,
        empty="no tokens yet: `mistnet tokens add NAME` makes one",
    )
    invocation.out.show(document(tokens=[{**asdict(each), "scope": each.scope.word} for each in tokens]), grid)


@shared_options
async def revoke(
    invocation: Invocation,
    token_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID, help="Its number in the list.")],
) -> None:
    """Revoke a token, and end the log-ins made with it."""
    async with open_app(invocation.settings) as app:
        revoked = await Tokens(app.database).revoke(token_id, now=app.database.clock.now())
    if revoked is None:
        raise TokenNotFound(token_id)
    invocation.out.show(document(id=revoked.id, revoked=True), f"token {revoked.id} ({revoked.name}) is revoked")
