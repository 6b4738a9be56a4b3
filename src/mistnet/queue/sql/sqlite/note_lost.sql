-- Note that the leases of these jobs ran out; the claim that follows takes them.
INSERT INTO job_errors (job_id, fence, at, worker, error)
SELECT j.id, j.fence, :now, j.worker, 'the lease ran out: the worker died or lost its way'
FROM jobs j
WHERE j.id IN (SELECT named.value FROM json_each(:ids) named) AND j.state = 'running'
ON CONFLICT DO NOTHING
