-- Edges that had ended and are seen again. Tells which.
-- One lookup by key for each: left alone, the planner would read the whole table.
-- :now time, :ingest_id bigint
UPDATE follows
SET ended_at = NULL, missed_in = NULL, last_seen_at = :now, seen_in = :ingest_id
WHERE rowid IN (
    SELECT f.rowid
    FROM json_each(:pairs) AS seen
    CROSS JOIN follows f ON f.platform = :platform
        AND f.follower_id = json_extract(seen.value, '$[0]') AND f.followed_id = json_extract(seen.value, '$[1]')
) AND ended_at IS NOT NULL
RETURNING follower_id, followed_id
