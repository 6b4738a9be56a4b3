-- Extend the leases of jobs that are still being worked on.
-- :until time
UPDATE jobs
SET lease_until = :until
FROM each(:held) AS held (id bigint, fence bigint)
WHERE jobs.id = held.id AND jobs.fence = held.fence AND jobs.worker IS NOT NULL
