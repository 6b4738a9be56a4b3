-- The thread walks that name a conversation: the live ones by each reply's own key, those without a result besides.
-- :id bigint
SELECT j.id, j.state, CAST(j.args AS text) AS args, j.last_error
FROM posts p
JOIN jobs j ON j.kind = 'walk' AND j.key = CAST(:prefix AS text) || CAST(p.conversation_id AS text) || ':' || CAST(p.id AS text)
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
WHERE p.platform = :platform AND p.conversation_id = :id
UNION ALL
SELECT j.id, j.state, CAST(j.args AS text) AS args, j.last_error
FROM jobs j
WHERE j.kind = 'walk' AND j.state IN ('failed', 'dead') AND j.key LIKE :walks
