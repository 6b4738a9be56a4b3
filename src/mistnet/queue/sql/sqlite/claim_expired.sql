-- Lease jobs whose lease ran out to another worker; the attempt of the one who lost them counts.
UPDATE jobs
SET fence = fence + 1,
    attempts = attempts + 1,
    alone = TRUE,
    worker = :worker,
    lease_until = :lease_until,
    started_at = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'running'
RETURNING id, fence, worker, kind, key, lane, args, attempts, max_attempts, run_at, created_at, alone
