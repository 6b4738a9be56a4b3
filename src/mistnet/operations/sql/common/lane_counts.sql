-- The queue by lane: jobs in each state, and since when the oldest of them is due.
-- :now time
SELECT j.lane,
    j.state,
    count(*) AS jobs,
    count(CASE WHEN j.parked THEN 1 END) AS parked,
    count(CASE WHEN j.state IN ('pending', 'retryable') AND NOT j.parked AND j.run_at <= :now THEN 1 END) AS due,
    min(CASE WHEN j.state IN ('pending', 'retryable') AND NOT j.parked AND j.run_at <= :now THEN j.run_at END)
        AS oldest_due_at
FROM jobs j
GROUP BY j.lane, j.state
ORDER BY j.lane, j.state
