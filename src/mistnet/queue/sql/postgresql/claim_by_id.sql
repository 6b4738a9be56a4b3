-- Lease the jobs that the broker delivered to one worker, as far as they are due and not leased.
-- Waits for locked rows, unlike `claim`: a job that is skipped here loses its message.
-- :now time, :lost_before time, :lease_until time
WITH open AS MATERIALIZED (
    -- what this worker may take: not paused, and how much room the caps leave
    SELECT t.kind, t.lane,
        CASE WHEN t.kind_cap IS NOT NULL THEN t.kind_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = t.kind) END AS kind_room,
        CASE WHEN t.lane_cap IS NOT NULL THEN t.lane_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = t.lane) END AS lane_room
    FROM each(:targets) AS t (kind text, lane text, kind_cap integer, lane_cap integer)
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = t.kind)
),
named AS MATERIALIZED (
    SELECT j.id, j.kind, j.lane, j.state, j.fence, j.worker, j.run_at
    FROM jobs j
    WHERE j.id IN each(:ids bigint)
        AND ((j.state IN ('queued', 'pending', 'retryable') AND NOT j.parked AND j.run_at <= :now)
            OR (j.state = 'running' AND j.lease_until <= :lost_before AND j.attempts + 1 < j.max_attempts))
    ORDER BY j.id
    FOR UPDATE OF j
),
placed AS MATERIALIZED (
    SELECT n.id, n.state, n.fence, n.worker, o.kind_room, o.lane_room,
        row_number() OVER (PARTITION BY n.kind, n.state = 'running' ORDER BY n.run_at, n.id) AS kind_place,
        row_number() OVER (PARTITION BY n.lane, n.state = 'running' ORDER BY n.run_at, n.id) AS lane_place
    FROM named n
    JOIN open o ON o.kind = n.kind AND o.lane = n.lane
),
taken AS MATERIALIZED (
    SELECT p.id, p.state, p.fence, p.worker
    FROM placed p
    WHERE p.state = 'running'
        OR (COALESCE(p.kind_place <= p.kind_room, TRUE) AND COALESCE(p.lane_place <= p.lane_room, TRUE))
),
noted AS (
    INSERT INTO job_errors (job_id, fence, at, worker, error)
    SELECT t.id, t.fence, :now, t.worker, 'the lease ran out: the worker died or lost its way'
    FROM taken t WHERE t.state = 'running'
    ON CONFLICT DO NOTHING
)
UPDATE jobs
SET state = 'running',
    fence = jobs.fence + 1,
    attempts = jobs.attempts + CASE WHEN jobs.state = 'running' THEN 1 ELSE 0 END,
    alone = jobs.alone OR jobs.state = 'running',
    worker = :worker,
    lease_until = :lease_until,
    started_at = :now,
    wait_reason = NULL
WHERE jobs.id = ANY (ARRAY(SELECT t.id FROM taken t))
RETURNING jobs.id, jobs.fence, jobs.worker, jobs.kind, jobs.key, jobs.lane, CAST(jobs.args AS text) AS args,
    jobs.attempts, jobs.max_attempts, jobs.run_at, jobs.created_at, jobs.alone,
    (SELECT t.worker FROM taken t WHERE t.id = jobs.id) AS lost_by
