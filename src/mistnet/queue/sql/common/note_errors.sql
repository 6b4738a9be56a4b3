-- Keep the error of each attempt, beside the job's own last error.
-- :now time
INSERT INTO job_errors (job_id, fence, at, worker, error)
SELECT n.id, n.fence, :now, :worker, n.error
FROM each(:notes) AS n (id bigint, fence bigint, error text)
WHERE TRUE
ON CONFLICT DO NOTHING
