-- When does the next job of these kinds and lanes fall due, and does a cap hide one that is due now?
WITH open AS MATERIALIZED (
    SELECT json_extract(t.value, '$.kind') AS kind,
        json_extract(t.value, '$.lane') AS lane,
        json_extract(t.value, '$.kind_cap') AS kind_cap,
        json_extract(t.value, '$.lane_cap') AS lane_cap
    FROM json_each(:targets) t
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = json_extract(t.value, '$.kind'))
),
head AS MATERIALIZED (
    SELECT (o.kind_cap IS NOT NULL AND o.kind_cap <= (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = o.kind))
        OR (o.lane_cap IS NOT NULL AND o.lane_cap <= (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = o.lane)) AS capped,
        (SELECT j.run_at FROM jobs j
        WHERE j.kind = o.kind AND j.lane = o.lane AND j.state IN ('pending', 'retryable') AND NOT parked
        ORDER BY j.run_at, j.id
        LIMIT 1) AS run_at
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
    )) AS next_due_at,
    EXISTS (SELECT 1 FROM head WHERE capped AND run_at <= :now) AS capped
