-- The posts that stored replies of a conversation answer and that are not stored; and does upstream still have them?
-- :id bigint
SELECT p.in_reply_to_id AS post_id,
    min(p.id) AS reply_id,
    count(*) AS replies,
    max(CASE WHEN m.id IS NULL THEN 0 ELSE 1 END) AS gone
FROM posts p
LEFT JOIN missing m ON m.platform = p.platform AND m.what = 'post' AND m.id = p.in_reply_to_id
WHERE p.platform = :platform AND p.conversation_id = :id
    AND p.in_reply_to_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM posts up WHERE up.platform = p.platform AND up.id = p.in_reply_to_id)
GROUP BY p.in_reply_to_id
ORDER BY p.in_reply_to_id
