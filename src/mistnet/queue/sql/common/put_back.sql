-- Give leased jobs their next state: the next step, waiting, failed or dead. The fence lets only the lease's holder do so.
-- A running job is found by its worker, not by its state: the plan must go by id, not through the index of leases.
UPDATE jobs
SET state = next.state,
    run_at = next.run_at,
    attempts = next.attempts,
    args = COALESCE(next.args, jobs.args),
    alone = jobs.alone OR next.alone,
    wait_reason = next.reason,
    last_error = COALESCE(next.error, jobs.last_error),
    worker = NULL,
    lease_until = NULL
FROM each(:settled) AS next (
    id bigint, fence bigint, state text, run_at time, attempts smallint, args json, alone boolean, reason text, error text
)
WHERE jobs.id = next.id AND jobs.fence = next.fence AND jobs.worker IS NOT NULL
RETURNING jobs.id, jobs.fence
