-- Running jobs whose worker has signed out, or has been silent since :before; their leases will run out.
SELECT count(*) AS jobs, count(DISTINCT j.worker) AS workers, max(j.lease_until) AS lease_until
FROM jobs j
LEFT JOIN workers w ON w.name = j.worker
WHERE j.state = 'running' AND j.lease_until > :now AND (w.name IS NULL OR w.seen_at < :before)
