-- Which of these jobs are still live? No other worker can end one while this transaction holds SQLite's write lock.
SELECT j.key FROM jobs j
WHERE j.kind = :kind AND j.key IN each(:keys text)
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
