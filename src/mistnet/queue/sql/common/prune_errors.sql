-- Forget the errors of jobs that are neither alive, nor a gap, nor in the history any more.
-- :before time, :limit integer
DELETE FROM job_errors
WHERE at < :before AND (job_id, fence) IN (
    SELECT e.job_id, e.fence FROM job_errors e
    WHERE e.at < :before
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = e.job_id)
        AND NOT EXISTS (SELECT 1 FROM job_history h WHERE h.id = e.job_id)
    LIMIT :limit
)
