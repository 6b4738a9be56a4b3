-- Which of these leases are still ours?
-- Leased is said by the worker, not by the state: the plan must go by id, not through the index of leases.
SELECT j.id, j.fence
FROM jobs j
JOIN unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[])) AS h (id, fence) ON j.id = h.id AND j.fence = h.fence
WHERE j.worker IS NOT NULL
