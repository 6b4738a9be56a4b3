"""The follow graph: syncs of followers and followings, and how they changed."""
