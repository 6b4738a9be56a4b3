-- Let parked jobs of one kind in, oldest first, as far as its cap on live jobs has room.
-- :limit integer
UPDATE jobs
SET parked = FALSE, wait_reason = NULL
WHERE parked AND id IN (
    SELECT p.id FROM jobs p
    WHERE p.parked AND p.kind = :kind
    ORDER BY p.run_at, p.id
    LIMIT :limit
)
RETURNING id
