"""Delivery of events to webhooks and Apprise."""
