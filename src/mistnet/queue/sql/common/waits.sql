-- What waits, and why: jobs that are not being worked on, grouped by what they wait for, the largest groups first.
-- :now time, :limit integer
WITH waiting AS (
    SELECT j.kind,
        j.lane,
        j.run_at,
        CASE
            WHEN j.parked THEN 'held back by the cap on live jobs'
            WHEN p.kind IS NOT NULL THEN 'paused: ' || p.reason
            WHEN j.state = 'queued' THEN 'handed to the broker'
            WHEN j.run_at <= :now THEN 'due: waits for a free worker'
            ELSE COALESCE(j.wait_reason, 'set for a later time')
        END AS reason
    FROM jobs j
    LEFT JOIN paused_kinds p ON p.kind = j.kind
    WHERE j.state IN ('pending', 'queued', 'retryable')
)
SELECT w.kind, w.lane, w.reason, count(*) AS jobs, min(w.run_at) AS next_due_at
FROM waiting w
GROUP BY w.kind, w.lane, w.reason
ORDER BY count(*) DESC, w.kind, w.lane, w.reason
LIMIT :limit
