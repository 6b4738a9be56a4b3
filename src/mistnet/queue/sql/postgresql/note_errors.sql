-- Keep what went wrong with each attempt, beside the job's own last error.
INSERT INTO job_errors (job_id, fence, at, worker, error)
SELECT n.id, n.fence, :now, :worker, n.error
FROM unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[]), CAST(:errors AS text[])) AS n (id, fence, error)
ON CONFLICT DO NOTHING
RETURNING job_id
