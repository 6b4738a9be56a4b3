-- Hand leases back untouched: the jobs are due again at their old place, and no attempt is spent.
UPDATE jobs
SET state = 'pending', worker = NULL, lease_until = NULL
WHERE id = :id AND fence = :fence AND state = 'running'
