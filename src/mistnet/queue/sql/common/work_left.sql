-- Is anything left that a worker of these kinds would do without being asked again?
-- Work set for a later day does not count; work that waits for its next try or step does.
SELECT count(*) FROM (
    SELECT 1 FROM jobs
    WHERE (state IN ('queued', 'running', 'retryable')
            OR (state = 'pending' AND (run_at <= :now OR wait_reason IS NOT NULL OR parked)))
        AND kind IN :known AND lane IN :known_lanes
        AND kind NOT IN (SELECT p.kind FROM paused_kinds p)
    LIMIT 1
) AS found
