-- How many errors belong to jobs that are neither live nor in the history, counted no further than :limit.
-- :limit integer
SELECT count(*) FROM (
    SELECT 1 FROM job_errors e
    WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = e.job_id)
        AND NOT EXISTS (SELECT 1 FROM job_history h WHERE h.id = e.job_id)
    LIMIT :limit
) AS counted
