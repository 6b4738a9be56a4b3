-- The kind and lane whose oldest due job goes first, and how many of its jobs may be claimed.
-- Neither paused nor over a cap on running jobs. A job that waited too long precedes all classes.
-- :now time, :aged_before time
WITH target AS MATERIALIZED (
    SELECT t.kind, t.lane, t.class, t.take, t.kind_cap, t.lane_cap
    FROM each(:targets) AS t (
        kind text, lane text, kind_cap integer, lane_cap integer, class smallint, take integer
    )
),
open AS MATERIALIZED (
    SELECT w.kind, w.lane, w.class, min(
        w.take,
        CASE WHEN w.kind_cap IS NULL THEN w.take ELSE w.kind_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = w.kind) END,
        CASE WHEN w.lane_cap IS NULL THEN w.take ELSE w.lane_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = w.lane) END
    ) AS take
    FROM target w
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
