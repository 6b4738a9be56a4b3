"""RabbitMQ behind a port: it carries job ids to workers, and dead letters to operators."""

from typing import TYPE_CHECKING

from mistnet.kit.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.queue.rabbitmq.connection import BrokerAddress, BrokerConnector
    from mistnet.queue.rabbitmq.consumer import RabbitConsumer
    from mistnet.queue.rabbitmq.publisher import RabbitBroker
else:  # the AMQP client takes long to load, and only dispatched lanes need it
    __getattr__ = lazy_names(
        __name__,
        {
            "BrokerAddress": "connection",
            "BrokerConnector": "connection",
            "RabbitBroker": "publisher",
            "RabbitConsumer": "consumer",
        },
    )

__all__ = [
    "BrokerAddress",
    "BrokerConnector",
    "RabbitBroker",
    "RabbitConsumer",
]
