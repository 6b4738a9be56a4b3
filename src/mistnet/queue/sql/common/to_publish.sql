-- Due jobs of one kind and lane to publish to the broker, oldest first.
-- :now time, :limit integer
SELECT j.id, j.fence, j.lane, j.wait_reason
FROM jobs j
WHERE j.kind = :kind AND j.lane = :lane AND j.state IN ('pending', 'retryable') AND NOT j.parked AND j.run_at <= :now
    AND NOT EXISTS (SELECT 1 FROM paused_kinds p WHERE p.kind = :kind)
ORDER BY j.run_at, j.id
LIMIT :limit
