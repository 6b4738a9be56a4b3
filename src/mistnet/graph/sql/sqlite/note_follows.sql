-- What became of these edges, for whoever asks how they changed.
-- :now time, :ingest_id bigint
INSERT INTO follow_events (platform, follower_id, followed_id, kind, cause, at, ingest_id)
SELECT :platform, json_extract(turned.value, '$[0]'), json_extract(turned.value, '$[1]'), :kind, :cause, :now, :ingest_id
FROM json_each(:pairs) AS turned
