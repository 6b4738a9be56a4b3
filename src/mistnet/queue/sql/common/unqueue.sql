-- Take back jobs of one lane whose message seems lost: they are due as before and will be published again.
-- :before time, :limit integer
UPDATE jobs
SET state = 'pending', wait_reason = :reason
WHERE state = 'queued' AND id IN (
    SELECT q.id FROM jobs q
    WHERE q.state = 'queued' AND q.lane = :lane AND q.started_at <= :before
    ORDER BY q.started_at, q.id
    LIMIT :limit
)
RETURNING id
