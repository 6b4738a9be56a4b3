"""Runs, scheduler, alerts, events and webhooks, health, retention: what runs mistnet as a service."""
