"""Who follows whom, and segments: named sets of users or posts."""
