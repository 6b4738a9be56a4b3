"""Commands for alerts: list the open ones, accept one."""

from typing import Annotated, Final

import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.opening import open_database
from mistnet.cli.output import Grid, at, document
from mistnet.operations.alerts.store import AlertStore

_BY: Final = "command line"


@shared_options
async def list_alerts(invocation: Invocation) -> None:
    """Show all open alerts, the worst first, accepted ones too."""
    async with open_database(invocation.settings) as database:
        alerts = await AlertStore(database).list_open()
    grid = Grid(
        columns=("id", "", "rule", "since (UTC)", "accepted (UTC)", "what and what to do"),
        rows=[
            (
                *(str(each.id), each.severity, each.rule, at(each.opened_at)),
                f"{at(each.accepted_at)} by {each.accepted_by}" if each.accepted_at else "",
                each.message,
            )
            for each in alerts
        ],
        empty="no alert is open",
    )
    invocation.out.show(document(alerts=alerts), grid)


@shared_options
async def accept(
    invocation: Invocation,
    alert_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="The alert's id.")],
) -> None:
    """Accept an open alert: it no longer needs attention, until it is over or its severity changes."""
    async with open_database(invocation.settings) as database:
        done = await AlertStore(database).accept(alert_id, by=_BY, now=database.clock.now())
    invocation.out.show(document(alert=done), f"alert {done.id} is accepted: {done.rule} of {done.subject}")
