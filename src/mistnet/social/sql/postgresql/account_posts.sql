-- How many posts of these accounts are stored: the number kept, what is still to be merged into it, or else a count.
SELECT a.user_id,
    CASE WHEN known.user_id IS NULL
        THEN (SELECT count(*) FROM posts p WHERE p.platform = a.platform AND p.author_id = a.user_id)
        ELSE known.posts + coalesce(latest.posts, 0)
    END AS posts
FROM accounts a
LEFT JOIN account_posts known ON known.platform = a.platform AND known.user_id = a.user_id
LEFT JOIN (
    SELECT author.id AS user_id, sum(d.step) AS posts
    FROM post_deltas d
    CROSS JOIN unnest(d.authors) AS author (id)
    WHERE d.platform = :platform AND author.id IN each(:ids bigint)
    GROUP BY author.id
) latest ON latest.user_id = a.user_id
WHERE a.platform = :platform AND a.user_id IN each(:ids bigint)
