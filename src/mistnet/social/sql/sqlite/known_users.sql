-- Which of these users are stored, or known not to be had?
SELECT u.id FROM json_each(:ids) AS asked CROSS JOIN users u ON u.platform = :platform AND u.id = asked.value
UNION ALL
SELECT m.id FROM json_each(:ids) AS asked
CROSS JOIN missing m ON m.platform = :platform AND m.what = 'user' AND m.id = asked.value
