-- Give leased jobs their next state: on to the next step, waiting, failed or dead. Only the holder of the lease may.
-- Leased is said by the worker, not by the state: the plan must go by id, not through the index of leases.
UPDATE jobs
SET state = next.state,
    run_at = next.run_at,
    attempts = next.attempts,
    args = COALESCE(CAST(next.args AS json), jobs.args),
    alone = jobs.alone OR next.alone,
    wait_reason = next.reason,
    last_error = COALESCE(next.error, jobs.last_error),
    worker = NULL,
    lease_until = NULL
FROM unnest(
    CAST(:ids AS bigint[]), CAST(:fences AS bigint[]), CAST(:states AS text[]), CAST(:run_ats AS timestamptz[]),
    CAST(:attempts_list AS smallint[]), CAST(:args_list AS text[]), CAST(:alones AS boolean[]),
    CAST(:reasons AS text[]), CAST(:errors AS text[])
) AS next (id, fence, state, run_at, attempts, args, alone, reason, error)
WHERE jobs.id = next.id AND jobs.fence = next.fence AND jobs.worker IS NOT NULL
RETURNING jobs.id, jobs.fence
