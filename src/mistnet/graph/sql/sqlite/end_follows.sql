-- End doubted edges, unless they were seen since the sync began. Returns the ended ones.
-- SQLite's planner reads the subject's whole list in an UPDATE FROM. CROSS JOIN makes it look up each edge by key.
-- :now time, :ingest_id bigint, :since time
UPDATE follows
SET ended_at = :now
WHERE rowid IN (
    SELECT f.rowid
    FROM each(:edges) AS seen (follower_id bigint, followed_id bigint)
    CROSS JOIN follows f ON f.platform = :platform
        AND f.follower_id = seen.follower_id AND f.followed_id = seen.followed_id
) AND ended_at IS NULL AND missed_in IS NOT NULL AND last_seen_at < :since AND seen_in <> :ingest_id
RETURNING follower_id, followed_id
