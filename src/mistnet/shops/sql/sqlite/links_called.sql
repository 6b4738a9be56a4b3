-- Which of these canonical URLs are links already: asked with every group of posts that have any.
SELECT links.id, links.url_norm
FROM json_each(:names) AS asked
JOIN links ON links.url_norm = asked.value
