"""Commands for alerts: see those that are open, accept one."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.opening import open_database
from mistnet.cli.output import Grid, at, document
from mistnet.operations.alerts.store import AlertRow, AlertStore

_BY: Final = "command line"


@shared_options
async def list_alerts(invocation: Invocation) -> None:
    """Show all open alerts, the worst first, accepted ones too."""
    async with open_database(invocation.settings) as database:
        found = await AlertStore(database).list_open()
    grid = Grid(
        columns=("id", "", "rule", "since (UTC)", "accepted (UTC)", "what and what to do"),
        rows=[_row(each) for each in found],
        empty="no alert is open",
    )
    invocation.out.show(document(alerts=found), grid)


@shared_options
async def accept(
    invocation: Invocation,
    alert_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="The alert's id.")],
) -> None:
    """Accept an open alert: it needs nobody any more until it is over or gets worse."""
    async with open_database(invocation.settings) as database:
        done = await AlertStore(database).accept(alert_id, by=_BY, now=database.clock.now())
    said = f"alert {done.id} is accepted: {done.rule} of {done.subject}"
    invocation.out.show(document(alert=done), said)


def _row(alert: AlertRow) -> Sequence[str]:
    accepted = f"{at(alert.accepted_at)} by {alert.accepted_by}" if alert.accepted_at else ""
    return str(alert.id), alert.severity, alert.rule, at(alert.opened_at), accepted, alert.message
