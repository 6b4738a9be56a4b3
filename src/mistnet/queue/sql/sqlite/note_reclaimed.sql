-- Record every expired lease, whatever its kind; the `reclaim` that follows takes the jobs back.
-- :now time, :lost_before time, :limit integer
INSERT INTO job_errors (job_id, fence, at, worker, error)
SELECT j.id, j.fence, :now, j.worker, 'the lease ran out: the worker died or lost its way'
FROM jobs j
WHERE j.state = 'running' AND j.lease_until <= :lost_before
ORDER BY j.lease_until
LIMIT :limit
RETURNING job_id, worker
