"""The admin API, webhooks, health, metrics and dashboard."""
