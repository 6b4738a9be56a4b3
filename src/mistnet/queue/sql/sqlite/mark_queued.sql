-- Note that the broker has been told of these jobs; one that has moved since it was read is left as it is.
UPDATE jobs
SET state = 'queued', started_at = :now, wait_reason = NULL
WHERE state IN ('pending', 'retryable') AND id IN (
    SELECT j.id FROM json_each(:held) told
    JOIN jobs j ON j.id = json_extract(told.value, '$[0]') AND j.fence = json_extract(told.value, '$[1]'))
RETURNING id
