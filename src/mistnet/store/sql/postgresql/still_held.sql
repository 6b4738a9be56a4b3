-- Which of these leases are still ours?
SELECT j.id, j.fence
FROM jobs j
JOIN unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[])) AS h (id, fence) ON j.id = h.id AND j.fence = h.fence
WHERE j.state = 'running'
