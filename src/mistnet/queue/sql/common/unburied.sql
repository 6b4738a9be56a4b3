-- Gaps of one kind and lane that the dead-letter queue has not been told of, oldest first.
-- The kind is asked for as a range, so that the order leads through the index of gaps, not through all jobs there are.
SELECT j.id, j.fence, j.lane, j.kind, j.key, j.state, j.attempts, j.last_error
FROM jobs j
WHERE j.kind BETWEEN :kind AND :kind AND j.state IN ('failed', 'dead') AND j.lane = :lane
    AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.job_id = j.id AND d.fence = j.fence)
ORDER BY j.kind, j.id
LIMIT :limit
