-- Record that the leases of these jobs expired; the claim that follows takes the jobs.
-- :now time
INSERT INTO job_errors (job_id, fence, at, worker, error)
SELECT j.id, j.fence, :now, j.worker, 'the lease ran out: the worker died or lost its way'
FROM jobs j
WHERE j.id IN each(:ids bigint) AND j.state = 'running'
ON CONFLICT DO NOTHING
