-- Lengthen the leases of jobs still being worked on.
UPDATE jobs SET lease_until = :until
WHERE state = 'running' AND EXISTS (
    SELECT 1 FROM json_each(:held) h
    WHERE json_extract(h.value, '$[0]') = jobs.id AND json_extract(h.value, '$[1]') = jobs.fence)
    AND id IN (SELECT json_extract(h.value, '$[0]') FROM json_each(:held) h)
