-- When is the next job of these kinds and lanes due, and does a cap hold back one that is due now?
-- :now time
WITH open AS MATERIALIZED (
    SELECT t.kind, t.lane,
        (t.kind_cap IS NOT NULL AND t.kind_cap <= (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = t.kind))
        OR (t.lane_cap IS NOT NULL AND t.lane_cap <= (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = t.lane)) AS capped
    FROM each(:targets) AS t (kind text, lane text, kind_cap integer, lane_cap integer)
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = t.kind)
),
head AS MATERIALIZED (
    SELECT o.capped, (
        SELECT j.run_at FROM jobs j
        WHERE j.kind = o.kind AND j.lane = o.lane AND j.state IN ('pending', 'retryable') AND NOT j.parked
        ORDER BY j.run_at, j.id
        LIMIT 1
    ) AS run_at
    FROM open o
),
leased AS MATERIALIZED (
    SELECT j.lease_until AS run_at FROM jobs j
    WHERE j.state = 'running' AND j.attempts + 1 < j.max_attempts
        AND (j.kind, j.lane) IN (SELECT o.kind, o.lane FROM open o)
    ORDER BY j.lease_until
    LIMIT 1
)
SELECT
    (SELECT min(run_at) FROM (
        SELECT run_at FROM head WHERE NOT capped UNION ALL SELECT run_at FROM leased
    ) AS moments) AS next_due_at,
    EXISTS (SELECT 1 FROM head WHERE capped AND run_at <= :now) AS capped
