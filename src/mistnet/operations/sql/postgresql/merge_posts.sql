-- Add up to :limit changes to the numbers of stored posts. Authors that are no accounts are counted once they are.
-- :limit integer
WITH taken AS (
    DELETE FROM post_deltas
    WHERE id IN (SELECT d.id FROM post_deltas d ORDER BY d.id LIMIT :limit)
    RETURNING platform, step, authors
),
changed AS (
    SELECT t.platform, author.id AS user_id, sum(t.step) AS posts
    FROM taken t
    CROSS JOIN unnest(t.authors) AS author (id)
    GROUP BY t.platform, author.id
),
counted AS (
    UPDATE account_posts known
    SET posts = known.posts + c.posts
    FROM changed c
    WHERE known.platform = c.platform AND known.user_id = c.user_id
)
SELECT count(*) AS merged FROM taken
