-- Record that these jobs were published. A job that changed since it was read, by its fence or state, is left as it is.
-- Rows are locked in the order of ids, so that two dispatchers cannot deadlock.
-- :now time
UPDATE jobs
SET state = 'queued', started_at = :now, wait_reason = NULL
WHERE jobs.id = ANY (ARRAY(
    SELECT j.id
    FROM jobs j
    JOIN each(:published) AS published (id bigint, fence bigint)
        ON j.id = published.id AND j.fence = published.fence
    WHERE j.state IN ('pending', 'retryable')
    ORDER BY j.id
    FOR UPDATE OF j))
    AND jobs.state IN ('pending', 'retryable')
RETURNING jobs.id
