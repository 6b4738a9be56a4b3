-- How many jobs of one kind are alive and let in, counted no further than :limit.
-- :limit integer
SELECT count(*) FROM (
    SELECT 1 FROM jobs
    WHERE kind = :kind AND state IN ('pending', 'queued', 'running', 'retryable') AND NOT parked
    LIMIT :limit
) AS counted
