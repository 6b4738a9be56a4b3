"""Commands for RabbitMQ: declare queues, show lanes, requeue dead letters."""

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.output import Grid, document
from mistnet.kit.text import counted
from mistnet.queue.model import JobState, Lane
from mistnet.queue.rabbitmq.topology import DEAD_EXCHANGE, EXCHANGE, dead_queue_of, queue_of
from mistnet.queue.store.operations import GapFilter


@shared_options
async def declare(invocation: Invocation) -> None:
    """Make the exchanges and queues of all lanes in `amqp_lanes`. Doing it again changes nothing."""
    async with open_app(invocation.settings, checked=False) as app:
        lanes = await app.dispatching.declare()
    queues = [name for lane in lanes for name in (queue_of(lane), dead_queue_of(lane))]
    shown = document(exchanges=[EXCHANGE, DEAD_EXCHANGE], queues=queues)
    invocation.out.show(shown, f"{EXCHANGE}, {DEAD_EXCHANGE} and {len(queues)} queues are there: {', '.join(queues)}")


@shared_options
async def status(invocation: Invocation) -> None:
    """Show each dispatched lane: what the database has handed over, and what RabbitMQ holds."""
    async with open_app(invocation.settings) as app:
        depths = await app.dispatching.depths()
    columns = ("lane", "queued here", "overdue", "ready there", "consumers", "dead letters")
    rows = [
        (each.lane, *map(str, (each.queued, each.overdue, each.ready, each.consumers, each.dead))) for each in depths
    ]
    invocation.out.show(document(lanes=list(depths)), Grid(columns=columns, rows=rows))


async def requeue_dead(invocation: Invocation, app: App, lane: str, *, failed: bool) -> int:
    """Requeue the dead jobs of a lane. The database has them all, even if the broker lost dead letters."""
    app.dispatching.chosen([lane])
    done = await app.dispatching.requeue_dead(Lane(lane), app.operations, failed=failed)
    said = f"{len(done.requeued)} requeued"
    said += f", {len(done.held)} left: another live job holds their key" if done.held else ""
    left = 0 if failed else await app.inspector.gaps(GapFilter(lanes=[lane], states=[JobState.FAILED]))
    said += f", {left} that failed for good left: --failed takes {'it' if left == 1 else 'them'} too" if left else ""
    said += f", {counted(done.stale, 'letter')} of jobs that are dead no more removed" if done.stale else ""
    said += (
        f", {counted(done.unreadable, 'letter')} that cannot be read left in {dead_queue_of(lane)}"
        if done.unreadable
        else ""
    )
    shown = document(
        requeued=[str(each) for each in done.requeued],
        held=[str(each) for each in done.held],
        failed_left=left,
        stale=done.stale,
        unreadable=done.unreadable,
        problem=done.problem,
    )
    invocation.out.show(shown, said)
    if done.problem:
        complain(f"the letters are still in {dead_queue_of(lane)}: {done.problem}")
        return 1
    return 0
