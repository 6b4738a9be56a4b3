-- Copy finished jobs into the history; the delete that follows removes them from the live table.
-- :now time
INSERT INTO job_history (id, kind, key, lane, class, state, args, attempts, fence, run_at, created_at, started_at,
    finished_at, worker)
SELECT j.id, j.kind, j.key, j.lane, j.class, :state, j.args, j.attempts, j.fence, j.run_at, j.created_at,
    j.started_at, :now, j.worker
FROM jobs j
WHERE j.id IN each(:ids bigint)
