-- What do we know of these users? Runs inside BEGIN IMMEDIATE: nobody else can write meanwhile.
SELECT
    u.platform, u.id, u.handle, u.name, u.bio, u.avatar_url, u.location, u.website, u.banner_url,
    u.verified_kind, u.unavailable_reason, u.verified, u.protected, u.automated, u.created_at,
    u.followers_count, u.following_count, u.posts_count, u.media_count, u.likes_count, u.detail,
    u.profiled_at, u.last_updated_at
FROM json_each(:asked) AS asked
CROSS JOIN users u ON u.platform = json_extract(asked.value, '$[0]') AND u.id = json_extract(asked.value, '$[1]')
