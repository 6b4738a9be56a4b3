-- Edges that are new; those that are there already stay as they are. Tells which it added.
-- An end that is no stored user is refused by its foreign key, and all of it with it.
-- :now time, :ingest_id bigint
INSERT INTO follows (platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in)
SELECT :platform, json_extract(seen.value, '$[0]'), json_extract(seen.value, '$[1]'), :now, :now, :ingest_id
FROM json_each(:pairs) AS seen
WHERE true
ON CONFLICT (platform, follower_id, followed_id) DO NOTHING
RETURNING follower_id, followed_id
