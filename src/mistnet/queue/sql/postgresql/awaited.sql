-- Which of these jobs are still alive? They cannot end before this transaction does: what ends one of them wakes
-- those that wait for it, and must find them waiting.
SELECT j.key FROM jobs j
WHERE j.kind = :kind AND j.key = ANY (CAST(:keys AS text[]))
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
ORDER BY j.id
FOR KEY SHARE
