-- The sweeps of one account, or without a key of all, that are alive or ended without their result.
-- INDEXED BY: walks far outnumber sweeps, and SQLite's average statistics do not show that.
SELECT j.id, j.kind, j.state, CAST(j.args AS text) AS args, j.last_error, j.wait_reason
FROM jobs j INDEXED BY jobs_live_key
WHERE j.kind IN ('backfill', 'catch_up', 'reposts')
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
    AND (CAST(:key AS text) IS NULL OR j.key = :key OR j.key LIKE :mends)
UNION ALL
SELECT j.id, j.kind, j.state, CAST(j.args AS text) AS args, j.last_error, j.wait_reason
FROM jobs j INDEXED BY jobs_gaps
WHERE j.kind IN ('backfill', 'catch_up', 'reposts')
    AND j.state IN ('failed', 'dead')
    AND (CAST(:key AS text) IS NULL OR j.key = :key OR j.key LIKE :mends)
