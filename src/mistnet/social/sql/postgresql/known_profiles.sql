-- What do we know of these users? Locked, one after the other, so that what is told of them is added to that.
-- A lookup by key for each, written so that no planner can turn it into a join with a table it knows little of.
SELECT
    known.platform, known.id, known.handle, known.name, known.bio, known.avatar_url, known.location,
    known.website, known.banner_url, known.verified_kind, known.unavailable_reason, known.verified,
    known.protected, known.automated, known.created_at, known.followers_count, known.following_count,
    known.posts_count, known.media_count, known.likes_count, known.detail, known.profiled_at,
    known.last_updated_at
FROM unnest(CAST(:platforms AS text[]), CAST(:ids AS bigint[])) AS asked (platform, id)
CROSS JOIN LATERAL (
    SELECT
        u.platform, u.id, u.handle, u.name, u.bio, u.avatar_url, u.location, u.website, u.banner_url,
        u.verified_kind, u.unavailable_reason, u.verified, u.protected, u.automated, u.created_at,
        u.followers_count, u.following_count, u.posts_count, u.media_count, u.likes_count, u.detail,
        u.profiled_at, u.last_updated_at
    FROM users u
    WHERE u.platform = asked.platform AND u.id = asked.id
    LIMIT 1
    FOR UPDATE
) AS known
