-- Make jobs due now: a failed one starts over, a waiting one stops waiting.
-- A job whose kind and key are live in another job is left; of several failed ones with one key the newest is taken.
-- The states are checked again in the update: another transaction may have changed the row before it was locked.
-- :now time
WITH able AS MATERIALIZED (
    SELECT j.id, j.key, row_number() OVER (PARTITION BY j.kind, j.key ORDER BY j.id DESC) AS place
    FROM jobs j
    WHERE j.id IN each(:ids bigint)
        AND (j.state IN ('retryable', 'failed', 'dead')
            OR (j.state = 'pending' AND NOT j.parked AND j.run_at > :now))
        AND NOT EXISTS (
            SELECT 1 FROM jobs other
            WHERE other.kind = j.kind AND other.key = j.key AND other.id <> j.id
                AND other.state IN ('pending', 'queued', 'running', 'retryable'))
)
UPDATE jobs
SET state = 'pending',
    attempts = CASE WHEN jobs.state IN ('failed', 'dead') THEN 0 ELSE jobs.attempts END,
    run_at = :now,
    wait_reason = NULL
WHERE jobs.id = ANY (ARRAY(SELECT a.id FROM able a WHERE a.key IS NULL OR a.place = 1))
    AND (jobs.state IN ('retryable', 'failed', 'dead')
        OR (jobs.state = 'pending' AND NOT jobs.parked AND jobs.run_at > :now))
RETURNING jobs.id
