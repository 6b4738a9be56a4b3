-- When does the next job of these kinds and lanes fall due, and does a cap hide one that is due now?
WITH open AS MATERIALIZED (
    SELECT t.kind, t.lane, COALESCE(
        t.kind_cap <= (SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = t.kind)
        OR t.lane_cap <= (SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = t.lane), FALSE
    ) AS capped
    FROM unnest(
        CAST(:kinds AS text[]), CAST(:lanes AS text[]), CAST(:kind_caps AS integer[]), CAST(:lane_caps AS integer[])
    ) AS t (kind, lane, kind_cap, lane_cap)
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = t.kind)
),
head AS MATERIALIZED (
    SELECT o.capped, first.run_at
    FROM open o
    CROSS JOIN LATERAL (
        SELECT j.run_at FROM jobs j
        WHERE j.kind = o.kind AND j.lane = o.lane AND j.state IN ('pending', 'retryable') AND NOT j.parked
        ORDER BY j.run_at, j.id
        LIMIT 1
    ) AS first
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
