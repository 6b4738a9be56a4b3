"""Alerts: rules that find what needs an operator."""
