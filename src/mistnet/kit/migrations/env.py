"""Runs migrations on the connection that kit/migrate.py hands over."""

from alembic import context

from mistnet.kit.types import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
