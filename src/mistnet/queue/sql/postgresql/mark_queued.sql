-- Note that the broker has been told of these jobs; one that has moved since it was read is left as it is.
UPDATE jobs
SET state = 'queued', started_at = :now, wait_reason = NULL
WHERE jobs.id = ANY (ARRAY(
    SELECT j.id
    FROM jobs j
    JOIN unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[])) AS told (id, fence)
        ON j.id = told.id AND j.fence = told.fence
    WHERE j.state IN ('pending', 'retryable')
    ORDER BY j.id
    FOR UPDATE OF j))
    AND jobs.state IN ('pending', 'retryable')
RETURNING jobs.id
