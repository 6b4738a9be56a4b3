-- Hand leases back untouched: the jobs are due again at their old place, and no attempt is spent.
UPDATE jobs
SET state = 'pending', worker = NULL, lease_until = NULL
FROM unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[])) AS held (id, fence)
WHERE jobs.id = held.id AND jobs.fence = held.fence AND jobs.state = 'running'
RETURNING jobs.id
