-- Lease due jobs of one kind and lane to one worker. Runs inside BEGIN IMMEDIATE, so no other worker claims meanwhile.
-- :now time, :lease_until time, :take integer
UPDATE jobs
SET state = 'running',
    fence = fence + 1,
    worker = :worker,
    lease_until = :lease_until,
    started_at = :now,
    wait_reason = NULL
WHERE id IN (
    SELECT j.id FROM jobs j
    WHERE j.kind = :kind AND j.lane = :lane AND j.state IN ('pending', 'retryable') AND NOT parked
        AND j.run_at <= :now
    ORDER BY j.run_at, j.id
    LIMIT :take
)
RETURNING id, fence, worker, kind, key, lane, args, attempts, max_attempts, run_at, created_at, alone
