-- Take back jobs that were published on lanes that are no longer dispatched.
-- :before time
UPDATE jobs
SET state = 'pending', wait_reason = NULL
WHERE state = 'queued' AND started_at <= :before AND lane NOT IN each(:lanes text)
RETURNING id
