-- From each of these posts up through what is stored: which is the first we lack and could still have?
-- Each step is a lookup by key and written so that no planner, knowing little of tables that grow, can join instead.
WITH RECURSIVE climb (start, id, user_id) AS (
    SELECT asked.id, asked.id, CAST(NULL AS bigint) FROM unnest(CAST(:ids AS bigint[])) AS asked (id)
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
