-- Which of the jobs that the broker delivered may be leased: due, not leased, not paused, and with room under the caps.
-- :now time, :lost_before time
WITH open AS MATERIALIZED (
    SELECT t.kind, t.lane,
        CASE WHEN t.kind_cap IS NOT NULL THEN t.kind_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = t.kind) END AS kind_room,
        CASE WHEN t.lane_cap IS NOT NULL THEN t.lane_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = t.lane) END AS lane_room
    FROM each(:targets) AS t (kind text, lane text, kind_cap integer, lane_cap integer)
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = t.kind)
),
placed AS MATERIALIZED (
    SELECT j.id, j.state, j.worker, o.kind_room, o.lane_room,
        row_number() OVER (PARTITION BY j.kind, j.state = 'running' ORDER BY j.run_at, j.id) AS kind_place,
        row_number() OVER (PARTITION BY j.lane, j.state = 'running' ORDER BY j.run_at, j.id) AS lane_place
    FROM each(:ids) AS delivered (id bigint)
    JOIN jobs j ON j.id = delivered.id
    JOIN open o ON o.kind = j.kind AND o.lane = j.lane
    WHERE (j.state IN ('queued', 'pending', 'retryable') AND NOT j.parked AND j.run_at <= :now)
        OR (j.state = 'running' AND j.lease_until <= :lost_before AND j.attempts + 1 < j.max_attempts)
)
SELECT p.id, CASE WHEN p.state = 'running' THEN p.worker END AS lost_by
FROM placed p
WHERE p.state = 'running'
    OR (COALESCE(p.kind_place <= p.kind_room, TRUE) AND COALESCE(p.lane_place <= p.lane_room, TRUE))
