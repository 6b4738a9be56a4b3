-- Take a job back whose message came while its kind is paused; it is told of again when the kind goes on.
UPDATE jobs
SET state = 'pending', wait_reason = NULL
WHERE id = :id AND state = 'queued'
RETURNING id
