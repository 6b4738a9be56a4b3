-- The kind and lane whose oldest due job goes first, and how many of it may be taken.
-- Not paused, not over a cap on what runs at once; one that waited too long outranks all classes.
WITH wanted AS MATERIALIZED (
    SELECT json_extract(t.value, '$.kind') AS kind,
        json_extract(t.value, '$.lane') AS lane,
        json_extract(t.value, '$.job_class') AS class,
        json_extract(t.value, '$.take') AS take,
        json_extract(t.value, '$.kind_cap') AS kind_cap,
        json_extract(t.value, '$.lane_cap') AS lane_cap
    FROM json_each(:targets) t
),
open AS MATERIALIZED (
    SELECT w.kind, w.lane, w.class, min(
        w.take,
        CASE WHEN w.kind_cap IS NULL THEN w.take ELSE w.kind_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = w.kind) END,
        CASE WHEN w.lane_cap IS NULL THEN w.take ELSE w.lane_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = w.lane) END
    ) AS take
    FROM wanted w
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = w.kind)
),
head AS MATERIALIZED (
    SELECT o.kind, o.lane, o.class, o.take, (
        SELECT j.run_at FROM jobs j
        WHERE j.kind = o.kind AND j.lane = o.lane AND j.state IN ('pending', 'retryable') AND NOT parked
            AND j.run_at <= :now
        ORDER BY j.run_at, j.id
        LIMIT 1
    ) AS run_at
    FROM open o
)
SELECT h.kind, h.lane, h.take
FROM head h
WHERE h.run_at IS NOT NULL AND h.take > 0
ORDER BY CASE WHEN h.run_at <= :aged_before THEN 0 ELSE h.class END, h.run_at
LIMIT 1
