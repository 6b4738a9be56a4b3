-- Record the events of changed edges.
-- :now time, :ingest_id bigint
INSERT INTO follow_events (platform, follower_id, followed_id, kind, cause, at, ingest_id)
SELECT :platform, changed.follower_id, changed.followed_id, :kind, :cause, :now, :ingest_id
FROM each(:edges) AS changed (follower_id bigint, followed_id bigint)
