-- Move unfinished jobs to the history, whatever their state. A worker that runs one finds its lease gone.
-- :now time
WITH cancelled AS (
    DELETE FROM jobs
    WHERE jobs.id IN each(:ids bigint)
    RETURNING jobs.id, jobs.kind, jobs.key, jobs.lane, jobs.class, jobs.args, jobs.attempts, jobs.fence,
        jobs.run_at, jobs.created_at, jobs.started_at, jobs.worker
)
INSERT INTO job_history (id, kind, key, lane, class, state, args, attempts, fence, run_at, created_at, started_at,
    finished_at, worker)
SELECT c.id, c.kind, c.key, c.lane, c.class, 'cancelled', c.args, c.attempts, c.fence, c.run_at, c.created_at,
    c.started_at, :now, c.worker
FROM cancelled c
RETURNING id
