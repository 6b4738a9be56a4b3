"""The dashboard: pages for people, live."""

from fastapi import FastAPI


def add_pages(service: FastAPI) -> None:
    """Adds the dashboard's pages and its assets."""
