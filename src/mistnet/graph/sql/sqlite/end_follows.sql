-- Edges that are there no more, unless somebody has seen them since the sync began. Tells which it ended.
-- One lookup by key for each: left alone, the planner would read the whole table.
-- :now time, :ingest_id bigint, :since time
UPDATE follows
SET ended_at = :now
WHERE rowid IN (
    SELECT f.rowid
    FROM json_each(:pairs) AS gone
    CROSS JOIN follows f ON f.platform = :platform
        AND f.follower_id = json_extract(gone.value, '$[0]') AND f.followed_id = json_extract(gone.value, '$[1]')
) AND ended_at IS NULL AND missed_in IS NOT NULL AND last_seen_at < :since AND seen_in <> :ingest_id
RETURNING follower_id, followed_id
