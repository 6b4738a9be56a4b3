-- Lock users in the given order, so that writers merge into them one after the other. Posts may still refer to them.
SELECT locked.id
FROM each(:users) AS seen (platform text, id bigint)
CROSS JOIN LATERAL (
    SELECT u.id FROM users u WHERE u.platform = seen.platform AND u.id = seen.id LIMIT 1 FOR NO KEY UPDATE
) AS locked
