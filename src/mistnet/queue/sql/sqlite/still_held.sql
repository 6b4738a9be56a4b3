-- Which of these leases are still ours?
SELECT j.id, j.fence
FROM json_each(:held) h
JOIN jobs j ON j.id = json_extract(h.value, '$[0]') AND j.fence = json_extract(h.value, '$[1]')
WHERE j.state = 'running'
