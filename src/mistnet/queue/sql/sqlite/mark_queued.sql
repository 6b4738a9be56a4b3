-- Record that these jobs were published. A job that changed since it was read, by its fence or state, is left as it is.
-- :now time
UPDATE jobs
SET state = 'queued', started_at = :now, wait_reason = NULL
FROM each(:published) AS published (id bigint, fence bigint)
WHERE jobs.id = published.id AND jobs.fence = published.fence AND jobs.state IN ('pending', 'retryable')
RETURNING jobs.id
