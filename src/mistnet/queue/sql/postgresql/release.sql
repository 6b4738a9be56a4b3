-- Hand leases back untouched: the jobs are due again at their old place, and no attempt is spent.
-- Leased is said by the worker, not by the state: the plan must go by id, not through the index of leases.
UPDATE jobs
SET state = 'pending', worker = NULL, lease_until = NULL
FROM unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[])) AS held (id, fence)
WHERE jobs.id = held.id AND jobs.fence = held.fence AND jobs.worker IS NOT NULL
RETURNING jobs.id
