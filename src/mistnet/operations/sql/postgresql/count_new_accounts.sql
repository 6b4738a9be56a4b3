-- Count the posts of accounts that have no number yet, without those whose change is still to be merged into it.
-- :limit integer
INSERT INTO account_posts (platform, user_id, posts)
SELECT a.platform, a.user_id,
    (SELECT count(*) FROM posts p WHERE p.platform = a.platform AND p.author_id = a.user_id)
    - coalesce((
        SELECT sum(d.step * cardinality(array_positions(d.authors, a.user_id)))
        FROM post_deltas d
        WHERE d.platform = a.platform AND a.user_id = ANY (d.authors)
    ), 0)
FROM accounts a
WHERE NOT EXISTS (SELECT 1 FROM account_posts known WHERE known.platform = a.platform AND known.user_id = a.user_id)
LIMIT :limit
