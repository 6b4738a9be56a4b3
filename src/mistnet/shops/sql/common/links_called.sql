-- Which of these canonical URLs are stored as links? Runs for every batch of posts that contain links.
SELECT links.id, links.url_norm
FROM links
WHERE links.url_norm IN each(:names text)
