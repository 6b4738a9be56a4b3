-- The stored profiles of these users. Runs inside BEGIN IMMEDIATE, so no other writer can change them meanwhile.
SELECT
    u.platform, u.id, u.handle, u.name, u.bio, u.avatar_url, u.location, u.website, u.banner_url,
    u.verified_kind, u.unavailable_reason, u.verified, u.protected, u.automated, u.created_at,
    u.followers_count, u.following_count, u.posts_count, u.media_count, u.likes_count, u.detail,
    u.profiled_at, u.last_updated_at
FROM each(:users) AS seen (platform text, id bigint)
CROSS JOIN users u ON u.platform = seen.platform AND u.id = seen.id
