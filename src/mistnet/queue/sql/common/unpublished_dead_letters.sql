-- Failed jobs of one kind and lane that are not in the dead-letter queue yet, oldest first.
-- BETWEEN makes the planner read the index of failed jobs in this order instead of all jobs by id.
-- :limit integer
SELECT j.id, j.fence, j.lane, j.kind, j.key, j.state, j.attempts, j.last_error
FROM jobs j
WHERE j.kind BETWEEN :kind AND :kind AND j.state IN ('failed', 'dead') AND j.lane = :lane
    AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.job_id = j.id AND d.fence = j.fence)
ORDER BY j.kind, j.id
LIMIT :limit
