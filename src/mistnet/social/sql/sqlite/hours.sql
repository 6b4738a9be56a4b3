-- How many of an account's latest posts were written in each hour of the week (UTC). Monday's first hour is 0.
-- :user_id bigint, :limit integer
SELECT ((CAST(strftime('%w', p.created_at) AS integer) + 6) % 7) * 24 + CAST(strftime('%H', p.created_at) AS integer)
        AS hour,
    count(*) AS posts
FROM (
    SELECT own.created_at
    FROM posts own
    WHERE own.platform = :platform AND own.author_id = :user_id
    ORDER BY own.created_at DESC
    LIMIT :limit
) p
GROUP BY hour
