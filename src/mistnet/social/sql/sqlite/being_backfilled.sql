-- Whose backfill is alive, so that their posts will come by themselves?
SELECT j.key FROM json_each(:keys) AS asked
CROSS JOIN jobs j ON j.kind = 'backfill' AND j.key = asked.value
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
