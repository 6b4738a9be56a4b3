"""The FastAPI application: JSON API and dashboard."""
