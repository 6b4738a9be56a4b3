-- Which of these jobs are still live? The lock keeps them so until this transaction ends: the transaction that ends one
-- of them wakes the jobs that wait for it, and must find them waiting.
SELECT j.key FROM jobs j
WHERE j.kind = :kind AND j.key IN each(:keys text)
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
ORDER BY j.id
FOR KEY SHARE
