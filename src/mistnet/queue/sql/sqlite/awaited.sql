-- Which of these jobs are still alive? No other worker can end one while this transaction has the one write lock there is.
SELECT j.key FROM json_each(:keys) AS asked
CROSS JOIN jobs j ON j.kind = :kind AND j.key = asked.value
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
