"""Jobs over RabbitMQ, beside a bare consumer."""
