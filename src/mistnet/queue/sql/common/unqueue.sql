-- Take jobs of one lane back whose message seems lost: they are due as before, and the broker will be told again.
UPDATE jobs
SET state = 'pending', wait_reason = :reason
WHERE state = 'queued' AND id IN (
    SELECT q.id FROM jobs q
    WHERE q.state = 'queued' AND q.lane = :lane AND q.started_at <= :before
    ORDER BY q.started_at, q.id
    LIMIT :limit
)
RETURNING id
