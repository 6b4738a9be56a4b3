-- Which of these users are stored, or known to be unavailable?
SELECT u.id FROM users u WHERE u.platform = :platform AND u.id IN each(:ids bigint)
UNION ALL
SELECT m.id FROM missing m WHERE m.platform = :platform AND m.what = 'user' AND m.id IN each(:ids bigint)
