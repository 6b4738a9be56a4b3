-- The queue at a glance: jobs by kind and state, and since when the oldest of them is due.
-- :now time
SELECT j.kind,
    j.state,
    count(*) AS jobs,
    count(CASE WHEN j.parked THEN 1 END) AS parked,
    count(CASE WHEN j.state IN ('pending', 'retryable') AND NOT j.parked AND j.run_at <= :now THEN 1 END) AS due,
    min(CASE WHEN j.state IN ('pending', 'retryable') AND NOT j.parked AND j.run_at <= :now THEN j.run_at END)
        AS oldest_due_at,
    min(CASE WHEN j.state IN ('pending', 'retryable') AND NOT j.parked AND j.run_at > :now THEN j.run_at END)
        AS next_due_at,
    min(j.created_at) AS oldest_at
FROM jobs j
GROUP BY j.kind, j.state
ORDER BY j.kind, j.state
