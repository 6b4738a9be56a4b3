-- Add jobs. A job whose kind and key are live already is not added.
-- Those known to be live are left out before the insert: an insert waits for every other transaction that changes one.
-- :now time
INSERT INTO jobs (kind, key, lane, class, state, args, max_attempts, run_at, created_at, parked, wait_reason)
SELECT n.kind, n.key, n.lane, n.class, 'pending', n.args, n.max_attempts, n.run_at, :now, n.parked, n.reason
FROM each(:jobs) AS n (
    kind text, key text, lane text, class smallint, args json, max_attempts smallint, run_at time, parked boolean,
    reason text
)
WHERE NOT EXISTS (
    SELECT 1 FROM jobs j
    WHERE j.kind = n.kind AND j.key = n.key AND j.key IS NOT NULL
        AND j.state IN ('pending', 'queued', 'running', 'retryable')
)
ON CONFLICT (kind, key) WHERE key IS NOT NULL AND state IN ('pending', 'queued', 'running', 'retryable') DO NOTHING
