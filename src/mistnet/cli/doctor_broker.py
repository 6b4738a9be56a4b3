"""What the doctor finds at RabbitMQ: whether it lets us in, and whether its queues are as the settings want them."""

from collections.abc import Sequence

from mistnet.app import App
from mistnet.domain.errors import BrokerMismatch, BrokerRefused, BrokerUnreachable, NoBroker, SettingsError
from mistnet.store.findings import Finding, fail, ok, warn

_NAME = "broker"


async def broker_findings(app: App) -> Sequence[Finding]:
    """Nothing where no broker is configured. Only looks: it makes no queue."""
    if app.settings.broker_url is None:
        return []
    try:
        return [await _look(app)]
    except BrokerUnreachable as error:
        advice = "start it, or mend MISTNET_BROKER_URL; `mistnet work --via db` works without it"
        return [warn(_NAME, f"RabbitMQ at {error.url} does not answer: {error.problem}", advice)]
    except BrokerRefused as error:
        advice = "check user, password, virtual host and certificates; see docs/rabbitmq.md"
        return [fail(_NAME, f"RabbitMQ at {error.url} refuses us: {error.problem}", advice)]
    except BrokerMismatch as error:
        advice = "set amqp_queue_type as it was when the queue was made, or delete the queue: no job is lost by that"
        return [fail(_NAME, error.problem, advice)]
    except (NoBroker, SettingsError) as error:
        return [fail(_NAME, str(error), "mend the setting")]


async def _look(app: App) -> Finding:
    lanes = app.dispatching.lanes
    async with app.dispatching.broker("mistnet doctor") as broker:
        missing = await broker.look(lanes)
        depths = await broker.depths(lanes)
    if missing:
        made = "is not there yet" if len(missing) == 1 else "are not there yet"
        return warn(
            _NAME, f"{', '.join(missing)} {made}", "`mistnet broker declare`, or start a worker: both make them"
        )
    unheard = [lane for lane, depth in depths.items() if depth.ready and not depth.consumers]
    if unheard:
        waiting = depths[unheard[0]].ready
        said = "1 message" if waiting == 1 else f"{waiting:,} messages"
        verbs = "waits, and no worker takes it" if waiting == 1 else "wait, and no worker takes them"
        advice = f"start one: `mistnet work --via amqp --lanes {','.join(unheard)}`"
        return warn(_NAME, f"{said} of lane {unheard[0]} {verbs}", advice)
    if not lanes:
        return ok(_NAME, "RabbitMQ answers; no lane goes over it (amqp_lanes is empty)")
    queues = f"the queues of {', '.join(lanes)} are as they should be"
    return ok(_NAME, f"RabbitMQ answers; {queues}")
