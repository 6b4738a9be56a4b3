-- Forget which dead letters were published, for jobs that no longer exist.
DELETE FROM dead_letters
WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = dead_letters.job_id)
