-- Record the expired leases whose job has an attempt left; the claim that follows takes the jobs.
-- :now time, :lost_before time, :room integer
INSERT INTO job_errors (job_id, fence, at, worker, error)
SELECT j.id, j.fence, :now, j.worker, 'the lease ran out: the worker died or lost its way'
FROM jobs j
WHERE j.state = 'running' AND j.lease_until <= :lost_before AND j.attempts + 1 < j.max_attempts
    AND NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = j.kind)
    AND EXISTS (
        SELECT 1 FROM each(:targets) AS t (kind text, lane text)
        WHERE t.kind = j.kind AND t.lane = j.lane)
ORDER BY j.lease_until
LIMIT :room
RETURNING job_id, worker
