-- Going up the replies from each of these posts: the first post that is not stored and not known to be unavailable.
-- Also, without a start, which of these users are stored or known to be unavailable: both are asked at every page.
-- LATERAL with LIMIT keeps each step a lookup by key: with the statistics of a growing table the planner would join.
WITH RECURSIVE climb (start, id, user_id) AS (
    SELECT post.id, post.id, CAST(NULL AS bigint) FROM each(:ids) AS post (id bigint)
    UNION
    SELECT c.start, up.in_reply_to_id, up.in_reply_to_user_id
    FROM climb c
    CROSS JOIN LATERAL (
        SELECT p.in_reply_to_id, p.in_reply_to_user_id FROM posts p
        WHERE p.platform = :platform AND p.id = c.id AND p.in_reply_to_id IS NOT NULL
        LIMIT 1
    ) AS up
)
SELECT c.start, c.id, c.user_id
FROM climb c
WHERE (SELECT p.id FROM posts p WHERE p.platform = :platform AND p.id = c.id LIMIT 1) IS NULL
    AND (SELECT m.id FROM missing m WHERE m.platform = :platform AND m.what = 'post' AND m.id = c.id LIMIT 1) IS NULL
UNION ALL
SELECT CAST(NULL AS bigint), u.id, CAST(NULL AS bigint) FROM users u WHERE u.platform = :platform AND u.id IN each(:user_ids bigint)
UNION ALL
SELECT NULL, m.id, NULL FROM missing m
WHERE m.platform = :platform AND m.what = 'user' AND m.id IN each(:user_ids bigint)
