-- Which of these canonical URLs are links already: asked with every group of posts that have any.
SELECT links.id, links.url_norm
FROM links
WHERE links.url_norm = ANY(:names)
