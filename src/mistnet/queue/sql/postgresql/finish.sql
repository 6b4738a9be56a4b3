-- Move finished jobs from the live table to the history. Only the holder of the lease may.
-- Leased is said by the worker, not by the state: the plan must go by id, not through the index of leases.
WITH finished AS (
    DELETE FROM jobs
    USING unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[])) AS held (id, fence)
    WHERE jobs.id = held.id AND jobs.fence = held.fence AND jobs.worker IS NOT NULL
    RETURNING jobs.id, jobs.kind, jobs.key, jobs.lane, jobs.class, jobs.args, jobs.attempts, jobs.fence,
        jobs.run_at, jobs.created_at, jobs.started_at, jobs.worker
)
INSERT INTO job_history (id, kind, key, lane, class, state, args, attempts, fence, run_at, created_at, started_at,
    finished_at, worker)
SELECT f.id, f.kind, f.key, f.lane, f.class, 'succeeded', f.args, f.attempts, f.fence, f.run_at, f.created_at,
    f.started_at, :now, f.worker
FROM finished f
RETURNING id, fence
