-- Take jobs back whose lease expired: due again with the attempt counted, or dead if it was the last.
-- :now time
UPDATE jobs
SET state = CASE WHEN attempts + 1 >= max_attempts THEN 'dead' ELSE 'retryable' END,
    attempts = attempts + 1,
    alone = TRUE,
    run_at = :now,
    last_error = 'the lease of ' || worker || ' ran out: the worker died or lost its way',
    worker = NULL,
    lease_until = NULL,
    wait_reason = NULL
WHERE id IN each(:ids bigint)
RETURNING id, kind, lane, attempts, state
