-- Which of the jobs a broker named may be leased: due, held by nobody, not paused, and room under the caps.
WITH open AS MATERIALIZED (
    SELECT json_extract(t.value, '$.kind') AS kind,
        json_extract(t.value, '$.lane') AS lane,
        CASE WHEN json_extract(t.value, '$.kind_cap') IS NOT NULL THEN json_extract(t.value, '$.kind_cap') - (
            SELECT count(*) FROM jobs r
            WHERE r.state = 'running' AND r.kind = json_extract(t.value, '$.kind')) END AS kind_room,
        CASE WHEN json_extract(t.value, '$.lane_cap') IS NOT NULL THEN json_extract(t.value, '$.lane_cap') - (
            SELECT count(*) FROM jobs r
            WHERE r.state = 'running' AND r.lane = json_extract(t.value, '$.lane')) END AS lane_room
    FROM json_each(:targets) t
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = json_extract(t.value, '$.kind'))
),
placed AS MATERIALIZED (
    SELECT j.id, j.state, j.worker, o.kind_room, o.lane_room,
        row_number() OVER (PARTITION BY j.kind, j.state = 'running' ORDER BY j.run_at, j.id) AS kind_place,
        row_number() OVER (PARTITION BY j.lane, j.state = 'running' ORDER BY j.run_at, j.id) AS lane_place
    FROM json_each(:ids) named
    JOIN jobs j ON j.id = named.value
    JOIN open o ON o.kind = j.kind AND o.lane = j.lane
    WHERE (j.state IN ('queued', 'pending', 'retryable') AND NOT j.parked AND j.run_at <= :now)
        OR (j.state = 'running' AND j.lease_until <= :lost_before AND j.attempts + 1 < j.max_attempts)
)
SELECT p.id, CASE WHEN p.state = 'running' THEN p.worker END AS lost_by
FROM placed p
WHERE p.state = 'running'
    OR (COALESCE(p.kind_place <= p.kind_room, TRUE) AND COALESCE(p.lane_place <= p.lane_room, TRUE))
