-- Forget dead letters of jobs that are gone.
DELETE FROM dead_letters
WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = dead_letters.job_id)
