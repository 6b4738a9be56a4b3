-- Give one leased job its next state: on to the next step, waiting, failed or dead. Only the holder of the lease may.
UPDATE jobs
SET state = :state,
    run_at = :run_at,
    attempts = :attempts,
    args = COALESCE(:args, args),
    alone = alone OR :alone,
    wait_reason = :reason,
    last_error = COALESCE(:error, last_error),
    worker = NULL,
    lease_until = NULL
WHERE id = :id AND fence = :fence AND state = 'running'
