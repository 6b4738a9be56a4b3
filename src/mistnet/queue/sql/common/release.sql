-- Give leases back: the jobs are due again at their old place, and no attempt is spent.
-- A running job is found by its worker, not by its state: the plan must go by id, not through the index of leases.
UPDATE jobs
SET state = 'pending', worker = NULL, lease_until = NULL
FROM each(:held) AS held (id bigint, fence bigint)
WHERE jobs.id = held.id AND jobs.fence = held.fence AND jobs.worker IS NOT NULL
