-- Lease the jobs that the broker delivered to one worker. Runs inside BEGIN IMMEDIATE, after `claimable` chose them.
-- :now time, :lease_until time
UPDATE jobs
SET state = 'running',
    fence = fence + 1,
    attempts = attempts + CASE WHEN state = 'running' THEN 1 ELSE 0 END,
    alone = alone OR state = 'running',
    worker = :worker,
    lease_until = :lease_until,
    started_at = :now,
    wait_reason = NULL
WHERE id IN each(:ids bigint)
RETURNING id, fence, worker, kind, key, lane, args, attempts, max_attempts, run_at, created_at, alone
