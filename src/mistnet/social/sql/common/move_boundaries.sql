-- Note what a step of a sweep proved, once per account. Oldest only falls, newest only rises, and only sweeps come here.
-- :now time
UPDATE accounts
SET oldest_post_id = CASE
        WHEN s.oldest IS NULL OR oldest_post_id <= s.oldest THEN oldest_post_id ELSE s.oldest END,
    newest_post_id = CASE
        WHEN s.newest IS NULL OR newest_post_id >= s.newest THEN newest_post_id ELSE s.newest END,
    newest_repost_id = CASE
        WHEN s.newest_repost IS NULL OR newest_repost_id >= s.newest_repost THEN newest_repost_id
        ELSE s.newest_repost END,
    backfilled_at = CASE WHEN s.backfilled THEN COALESCE(backfilled_at, :now) ELSE backfilled_at END,
    reposts_backfilled_at = CASE
        WHEN s.reposts_backfilled THEN COALESCE(reposts_backfilled_at, :now) ELSE reposts_backfilled_at END,
    last_fetched_at = :now,
    posts_found = posts_found + COALESCE(s.found, 0)
FROM each(:swept) AS s (
    platform text, user_id bigint, oldest bigint, newest bigint, newest_repost bigint, backfilled boolean,
    reposts_backfilled boolean, found bigint
)
WHERE accounts.platform = s.platform AND accounts.user_id = s.user_id
