-- Take back a job whose message arrived while its kind is paused; it is published again when the kind is resumed.
-- :id bigint
UPDATE jobs
SET state = 'pending', wait_reason = NULL
WHERE id = :id AND state = 'queued'
RETURNING id
