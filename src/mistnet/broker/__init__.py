"""RabbitMQ behind a port."""
