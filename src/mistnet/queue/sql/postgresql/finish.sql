-- Move finished jobs from the live table to the history. The fence lets only the lease's holder do so.
-- A running job is found by its worker, not by its state: the plan must go by id, not through the index of leases.
-- :now time
WITH finished AS (
    DELETE FROM jobs
    USING each(:held) AS held (id bigint, fence bigint)
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
