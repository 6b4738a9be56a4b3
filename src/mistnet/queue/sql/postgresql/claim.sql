-- Lease due jobs of the most urgent kind and lane to one worker.
-- A job whose lease expired is due again, because its worker died or stalled; that costs it an attempt.
-- From then on it runs in isolation: it may be the job that killed its worker.
-- :now time, :lost_before time, :lease_until time, :aged_before time, :room integer
WITH open AS MATERIALIZED (
    -- what this worker may take: not paused, not over a cap on what runs at once
    SELECT t.kind, t.lane, t.class, LEAST(
        t.take,
        CASE WHEN t.kind_cap IS NOT NULL THEN t.kind_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = t.kind) END,
        CASE WHEN t.lane_cap IS NOT NULL THEN t.lane_cap - (
            SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = t.lane) END
    ) AS take
    FROM each(:targets) AS t (
        kind text, lane text, kind_cap integer, lane_cap integer, class smallint, take integer
    )
    WHERE NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = t.kind)
),
expired AS MATERIALIZED (
    -- expired leases; a job without an attempt left is left to `reclaim`, which makes it dead
    SELECT j.id, j.fence, j.worker
    FROM jobs j
    WHERE j.state = 'running' AND j.lease_until <= :lost_before AND j.attempts + 1 < j.max_attempts
        AND (j.kind, j.lane) IN (SELECT o.kind, o.lane FROM open o)
    ORDER BY j.lease_until
    LIMIT :room
    FOR UPDATE SKIP LOCKED
),
urgent AS MATERIALIZED (
    -- the kind and lane whose oldest due job goes first; one that waited too long precedes all classes
    SELECT o.kind, o.lane, o.take
    FROM open o
    CROSS JOIN LATERAL (
        SELECT j.run_at FROM jobs j
        WHERE j.kind = o.kind AND j.lane = o.lane AND j.state IN ('pending', 'retryable') AND NOT j.parked
            AND j.run_at <= :now
        ORDER BY j.run_at, j.id
        LIMIT 1
    ) AS head
    WHERE o.take > 0 AND NOT EXISTS (SELECT 1 FROM expired)
    ORDER BY CASE WHEN head.run_at <= :aged_before THEN 0 ELSE o.class END, head.run_at
    LIMIT 1
),
due AS MATERIALIZED (
    SELECT j.id
    FROM jobs j
    WHERE j.kind = (SELECT u.kind FROM urgent u) AND j.lane = (SELECT u.lane FROM urgent u)
        AND j.state IN ('pending', 'retryable') AND NOT j.parked AND j.run_at <= :now
    ORDER BY j.run_at, j.id
    LIMIT (SELECT u.take FROM urgent u)
    FOR UPDATE SKIP LOCKED
),
noted AS (
    INSERT INTO job_errors (job_id, fence, at, worker, error)
    SELECT e.id, e.fence, :now, e.worker, 'the lease ran out: the worker died or lost its way' FROM expired e
    ON CONFLICT DO NOTHING
)
-- by array, so that the plan goes through the primary key however many rows the planner expects
UPDATE jobs
SET state = 'running',
    fence = jobs.fence + 1,
    attempts = jobs.attempts + CASE WHEN jobs.state = 'running' THEN 1 ELSE 0 END,
    alone = jobs.alone OR jobs.state = 'running',
    worker = :worker,
    lease_until = :lease_until,
    started_at = :now,
    wait_reason = NULL
WHERE jobs.id = ANY (ARRAY(SELECT d.id FROM due d UNION ALL SELECT e.id FROM expired e))
RETURNING jobs.id, jobs.fence, jobs.worker, jobs.kind, jobs.key, jobs.lane, CAST(jobs.args AS text) AS args,
    jobs.attempts, jobs.max_attempts, jobs.run_at, jobs.created_at, jobs.alone,
    (SELECT e.worker FROM expired e WHERE e.id = jobs.id) AS lost_by
