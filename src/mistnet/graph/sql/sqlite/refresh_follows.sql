-- Refresh live edges that are seen again. They are no longer doubted.
-- SQLite's planner reads the subject's whole list in an UPDATE FROM. CROSS JOIN makes it look up each edge by key.
-- :now time, :ingest_id bigint
UPDATE follows
SET missed_in = NULL, last_seen_at = :now, seen_in = :ingest_id
WHERE rowid IN (
    SELECT f.rowid
    FROM each(:edges) AS seen (follower_id bigint, followed_id bigint)
    CROSS JOIN follows f ON f.platform = :platform
        AND f.follower_id = seen.follower_id AND f.followed_id = seen.followed_id
) AND ended_at IS NULL
