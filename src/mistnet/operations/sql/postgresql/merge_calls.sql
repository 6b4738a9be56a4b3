-- Add up to :limit changes of the ledger to its sums by hour, and by day and account.
-- :limit integer
WITH taken AS (
    DELETE FROM call_deltas
    WHERE id IN (SELECT d.id FROM call_deltas d ORDER BY d.id LIMIT :limit)
    RETURNING hour, source, endpoint, account_id, entries, calls, items, credits, failures
),
by_hour AS (
    INSERT INTO call_hours AS known (hour, source, endpoint, entries, calls, items, credits, failures)
    SELECT t.hour, t.source, t.endpoint, sum(t.entries), sum(t.calls), sum(t.items), sum(t.credits), sum(t.failures)
    FROM taken t
    GROUP BY t.hour, t.source, t.endpoint
    ON CONFLICT (hour, source, endpoint) DO UPDATE
    SET entries = known.entries + excluded.entries,
        calls = known.calls + excluded.calls,
        items = known.items + excluded.items,
        credits = known.credits + excluded.credits,
        failures = known.failures + excluded.failures
),
by_day AS (
    INSERT INTO call_days AS known (day, account_id, entries, calls, items, credits, failures)
    SELECT left(t.hour, 10), t.account_id, sum(t.entries), sum(t.calls), sum(t.items), sum(t.credits), sum(t.failures)
    FROM taken t
    GROUP BY left(t.hour, 10), t.account_id
    ON CONFLICT (day, account_id) DO UPDATE
    SET entries = known.entries + excluded.entries,
        calls = known.calls + excluded.calls,
        items = known.items + excluded.items,
        credits = known.credits + excluded.credits,
        failures = known.failures + excluded.failures
)
SELECT count(*) AS merged FROM taken
