"""RabbitMQ behind a port: it carries job ids to workers, and dead letters to operators."""
