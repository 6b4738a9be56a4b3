-- Which of these users are stored, or known not to be had?
SELECT u.id FROM users u WHERE u.platform = :platform AND u.id = ANY (CAST(:ids AS bigint[]))
UNION ALL
SELECT m.id FROM missing m WHERE m.platform = :platform AND m.what = 'user' AND m.id = ANY (CAST(:ids AS bigint[]))
