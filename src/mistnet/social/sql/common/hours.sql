-- In which hours of the week an account's latest posts were written, without a look at the posts themselves:
-- X's ids carry their time since 2010. The first hour of 1970 was a Thursday's; Monday's first is 0.
-- :user_id bigint, :limit integer
SELECT (((p.id >> 22) + 1288834974657) / 3600000 + 72) % 168 AS hour, count(*) AS posts
FROM (
    SELECT own.id
    FROM posts own
    WHERE own.platform = :platform AND own.author_id = :user_id AND own.id >= 1099511627776
    ORDER BY own.id DESC
    LIMIT :limit
) p
GROUP BY (((p.id >> 22) + 1288834974657) / 3600000 + 72) % 168
