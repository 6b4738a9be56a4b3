-- Take jobs back whose lease expired: due again with the attempt counted, or dead if it was the last.
-- :now time, :lost_before time, :limit integer
WITH expired AS MATERIALIZED (
    SELECT j.id, j.fence, j.worker
    FROM jobs j
    WHERE j.state = 'running' AND j.lease_until <= :lost_before
    ORDER BY j.lease_until
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
noted AS (
    INSERT INTO job_errors (job_id, fence, at, worker, error)
    SELECT e.id, e.fence, :now, e.worker, 'the lease ran out: the worker died or lost its way' FROM expired e
    ON CONFLICT DO NOTHING
)
UPDATE jobs
SET state = CASE WHEN jobs.attempts + 1 >= jobs.max_attempts THEN 'dead' ELSE 'retryable' END,
    attempts = jobs.attempts + 1,
    alone = TRUE,
    run_at = :now,
    worker = NULL,
    lease_until = NULL,
    last_error = 'the lease of ' || jobs.worker || ' ran out: the worker died or lost its way',
    wait_reason = NULL
WHERE jobs.id = ANY (ARRAY(SELECT e.id FROM expired e))
RETURNING jobs.id, jobs.kind, jobs.lane, jobs.attempts, jobs.state,
    (SELECT e.worker FROM expired e WHERE e.id = jobs.id) AS lost_by
