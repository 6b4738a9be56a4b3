-- Lease jobs whose lease expired to another worker. The lost attempt counts.
-- :now time, :lease_until time
UPDATE jobs
SET fence = fence + 1,
    attempts = attempts + 1,
    alone = TRUE,
    worker = :worker,
    lease_until = :lease_until,
    started_at = :now
WHERE id IN each(:ids bigint) AND state = 'running'
RETURNING id, fence, worker, kind, key, lane, args, attempts, max_attempts, run_at, created_at, alone
