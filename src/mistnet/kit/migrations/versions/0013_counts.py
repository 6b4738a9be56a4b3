"""Sums of the ledger and the number of stored posts of each account, kept as rows are written."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import IDS, BigId

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

SUMS = ("entries", "calls", "items", "credits", "failures")
_NAMES = ", ".join(SUMS)
_ADDED = ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)


def upgrade() -> None:
    op.create_table(
        "call_hours",
        sa.Column("hour", sa.Text, primary_key=True),
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("endpoint", sa.Text, primary_key=True),
        *_sums(),
        sa.CheckConstraint("length(hour) = 13", name="hour_is_a_date_and_an_hour"),
    )
    op.create_table(
        "call_days",
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("account_id", BigId, primary_key=True, autoincrement=False),
        *_sums(),
        sa.CheckConstraint("length(day) = 10", name="day_is_a_date"),
    )
    op.create_table(
        "call_deltas",
        sa.Column("id", BigId, primary_key=True, autoincrement=True),
        sa.Column("hour", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("account_id", BigId, nullable=False),
        *_sums(),
    )
    op.create_table(
        "account_posts",
        sa.Column("platform", sa.Text, primary_key=True),
        sa.Column("user_id", BigId, primary_key=True, autoincrement=False),
        sa.Column("posts", BigId, nullable=False),
    )
    op.create_table(
        "post_deltas",
        sa.Column("id", BigId, primary_key=True, autoincrement=True),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("step", sa.SmallInteger, nullable=False),
        sa.Column("authors", IDS, nullable=False),
    )
    connection = op.get_bind()
    # The triggers first: on PostgreSQL they lock out writers, whose rows would otherwise be counted by neither.
    is_postgresql = connection.dialect.name == "postgresql"
    for statement in (*(POSTGRESQL if is_postgresql else SQLITE), *_counted(is_postgresql=is_postgresql)):
        connection.exec_driver_sql(statement)


def _sums() -> list[sa.Column[int]]:
    return [sa.Column(name, BigId, nullable=False) for name in SUMS]


def _counted(*, is_postgresql: bool) -> tuple[str, ...]:
    """Count what is stored already."""
    hour = "to_char(timezone('UTC', at), 'YYYY-MM-DD HH24')" if is_postgresql else "substr(at, 1, 13)"
    sums = (
        "count(*), sum(CASE endpoint WHEN 'reconciliation' THEN 0 ELSE 1 END), sum(items), sum(credits), count(error)"
    )
    return (
        f"""
INSERT INTO call_hours (hour, source, endpoint, {_NAMES})
SELECT {hour}, source, endpoint, {sums} FROM calls GROUP BY 1, 2, 3
""",
        f"""
INSERT INTO call_days (day, account_id, {_NAMES})
SELECT substr({hour}, 1, 10), coalesce(account_id, 0), {sums} FROM calls GROUP BY 1, 2
""",
        """
INSERT INTO account_posts (platform, user_id, posts)
SELECT a.platform, a.user_id, (SELECT count(*) FROM posts p WHERE p.platform = a.platform AND p.author_id = a.user_id)
FROM accounts a
""",
    )


# Rows are only added, as sums that all writers change would make them wait for each other. Workers merge these rows.
POSTGRESQL = (
    """
CREATE FUNCTION count_calls() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    step bigint := CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END;
BEGIN
    INSERT INTO call_deltas (hour, source, endpoint, account_id, entries, calls, items, credits, failures)
    SELECT to_char(timezone('UTC', c.at), 'YYYY-MM-DD HH24'), c.source, c.endpoint, coalesce(c.account_id, 0),
        step * count(*), step * count(*) FILTER (WHERE c.endpoint <> 'reconciliation'), step * sum(c.items),
        step * sum(c.credits), step * count(c.error)
    FROM changed c
    GROUP BY 1, 2, 3, 4;
    RETURN NULL;
END
$$
""",
    """
CREATE TRIGGER calls_added AFTER INSERT ON calls REFERENCING NEW TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION count_calls()
""",
    """
CREATE TRIGGER calls_removed AFTER DELETE ON calls REFERENCING OLD TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION count_calls()
""",
    """
CREATE FUNCTION count_posts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO post_deltas (platform, step, authors)
    SELECT c.platform, CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END, array_agg(c.author_id)
    FROM changed c
    GROUP BY c.platform;
    RETURN NULL;
END
$$
""",
    """
CREATE TRIGGER posts_added AFTER INSERT ON posts REFERENCING NEW TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION count_posts()
""",
    """
CREATE TRIGGER posts_removed AFTER DELETE ON posts REFERENCING OLD TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION count_posts()
""",
)

# There is one writer at a time, so the sums are changed at once.
SQLITE = (
    f"""
CREATE TRIGGER calls_added AFTER INSERT ON calls BEGIN
    INSERT INTO call_hours (hour, source, endpoint, {_NAMES})
    VALUES (substr(NEW.at, 1, 13), NEW.source, NEW.endpoint, 1,
        CASE NEW.endpoint WHEN 'reconciliation' THEN 0 ELSE 1 END, NEW.items, NEW.credits,
        CASE WHEN NEW.error IS NULL THEN 0 ELSE 1 END)
    ON CONFLICT (hour, source, endpoint) DO UPDATE SET {_ADDED};
    INSERT INTO call_days (day, account_id, {_NAMES})
    VALUES (substr(NEW.at, 1, 10), coalesce(NEW.account_id, 0), 1,
        CASE NEW.endpoint WHEN 'reconciliation' THEN 0 ELSE 1 END, NEW.items, NEW.credits,
        CASE WHEN NEW.error IS NULL THEN 0 ELSE 1 END)
    ON CONFLICT (day, account_id) DO UPDATE SET {_ADDED};
END
""",
    f"""
CREATE TRIGGER calls_removed AFTER DELETE ON calls BEGIN
    INSERT INTO call_hours (hour, source, endpoint, {_NAMES})
    VALUES (substr(OLD.at, 1, 13), OLD.source, OLD.endpoint, -1,
        CASE OLD.endpoint WHEN 'reconciliation' THEN 0 ELSE -1 END, -OLD.items, -OLD.credits,
        CASE WHEN OLD.error IS NULL THEN 0 ELSE -1 END)
    ON CONFLICT (hour, source, endpoint) DO UPDATE SET {_ADDED};
    INSERT INTO call_days (day, account_id, {_NAMES})
    VALUES (substr(OLD.at, 1, 10), coalesce(OLD.account_id, 0), -1,
        CASE OLD.endpoint WHEN 'reconciliation' THEN 0 ELSE -1 END, -OLD.items, -OLD.credits,
        CASE WHEN OLD.error IS NULL THEN 0 ELSE -1 END)
    ON CONFLICT (day, account_id) DO UPDATE SET {_ADDED};
END
""",
    """
CREATE TRIGGER posts_added AFTER INSERT ON posts BEGIN
    UPDATE account_posts SET posts = posts + 1 WHERE platform = NEW.platform AND user_id = NEW.author_id;
END
""",
    """
CREATE TRIGGER posts_removed AFTER DELETE ON posts BEGIN
    UPDATE account_posts SET posts = posts - 1 WHERE platform = OLD.platform AND user_id = OLD.author_id;
END
""",
    """
CREATE TRIGGER accounts_added AFTER INSERT ON accounts BEGIN
    INSERT INTO account_posts (platform, user_id, posts)
    VALUES (NEW.platform, NEW.user_id,
        (SELECT count(*) FROM posts p WHERE p.platform = NEW.platform AND p.author_id = NEW.user_id))
    ON CONFLICT (platform, user_id) DO UPDATE SET posts = excluded.posts;
END
""",
)
