-- The stored profiles of these users. Nothing is locked: most of them are not changed.
-- LATERAL with LIMIT keeps each a lookup by key: with the statistics of a growing table the planner would join.
SELECT
    known.platform, known.id, known.handle, known.name, known.bio, known.avatar_url, known.location,
    known.website, known.banner_url, known.verified_kind, known.unavailable_reason, known.verified,
    known.protected, known.automated, known.created_at, known.followers_count, known.following_count,
    known.posts_count, known.media_count, known.likes_count, known.detail, known.profiled_at,
    known.last_updated_at
FROM each(:users) AS seen (platform text, id bigint)
CROSS JOIN LATERAL (
    SELECT
        u.platform, u.id, u.handle, u.name, u.bio, u.avatar_url, u.location, u.website, u.banner_url,
        u.verified_kind, u.unavailable_reason, u.verified, u.protected, u.automated, u.created_at,
        u.followers_count, u.following_count, u.posts_count, u.media_count, u.likes_count, u.detail,
        u.profiled_at, u.last_updated_at
    FROM users u
    WHERE u.platform = seen.platform AND u.id = seen.id
    LIMIT 1
) AS known
