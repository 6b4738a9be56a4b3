-- Going up the replies from each of these posts: the first post that is not stored and not known to be unavailable.
-- Also, without a start, which of these users are stored or known to be unavailable: both are asked at every page.
WITH RECURSIVE climb (start, id, user_id) AS (
    SELECT post.id, post.id, NULL FROM each(:ids) AS post (id bigint)
    UNION
    SELECT c.start, p.in_reply_to_id, p.in_reply_to_user_id
    FROM climb c
    CROSS JOIN posts p ON p.platform = :platform AND p.id = c.id
    WHERE p.in_reply_to_id IS NOT NULL
)
SELECT c.start, c.id, c.user_id
FROM climb c
WHERE NOT EXISTS (SELECT 1 FROM posts p WHERE p.platform = :platform AND p.id = c.id)
    AND NOT EXISTS (SELECT 1 FROM missing m WHERE m.platform = :platform AND m.what = 'post' AND m.id = c.id)
UNION ALL
SELECT NULL, u.id, NULL FROM users u WHERE u.platform = :platform AND u.id IN each(:user_ids bigint)
UNION ALL
SELECT NULL, m.id, NULL FROM missing m
WHERE m.platform = :platform AND m.what = 'user' AND m.id IN each(:user_ids bigint)
