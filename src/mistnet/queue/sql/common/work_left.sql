-- Is any job left that workers of these kinds will run by themselves?
-- Jobs scheduled for later do not count; jobs that wait for their next attempt or step do.
-- :now time
SELECT count(*) FROM (
    SELECT 1 FROM jobs
    WHERE (state IN ('queued', 'running', 'retryable')
            OR (state = 'pending' AND (run_at <= :now OR wait_reason IS NOT NULL OR parked)))
        AND kind IN each(:kinds text) AND lane IN each(:lanes text)
        AND kind NOT IN (SELECT p.kind FROM paused_kinds p)
    LIMIT 1
) AS found
