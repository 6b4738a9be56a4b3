-- Add jobs; one whose kind and key are already alive is left as it is.
INSERT INTO jobs (kind, key, lane, class, state, args, max_attempts, run_at, created_at, parked, wait_reason)
SELECT n.kind, n.key, n.lane, n.class, 'pending', CAST(n.args AS json), n.max_attempts, n.run_at, :now, n.parked,
    n.reason
FROM unnest(
    CAST(:kinds AS text[]), CAST(:keys AS text[]), CAST(:lanes AS text[]), CAST(:classes AS smallint[]),
    CAST(:args_list AS text[]), CAST(:max_attempts_list AS smallint[]), CAST(:run_ats AS timestamptz[]),
    CAST(:parkeds AS boolean[]), CAST(:reasons AS text[])
) AS n (kind, key, lane, class, args, max_attempts, run_at, parked, reason)
ON CONFLICT (kind, key) WHERE key IS NOT NULL AND state IN ('pending', 'queued', 'running', 'retryable') DO NOTHING
