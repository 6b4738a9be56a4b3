"""RabbitMQ behind a port: it carries job ids to workers, and dead letters to operators."""

from typing import TYPE_CHECKING

from mistnet.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.broker.line import Address, Line
    from mistnet.broker.mailbox import RabbitMailbox
    from mistnet.broker.publisher import RabbitBroker
else:  # the AMQP client takes long to load, and only dispatched lanes need it
    __getattr__ = lazy_names(
        __name__,
        {
            "Address": "line",
            "Line": "line",
            "RabbitBroker": "publisher",
            "RabbitMailbox": "mailbox",
        },
    )

__all__ = [
    "Address",
    "Line",
    "RabbitBroker",
    "RabbitMailbox",
]
