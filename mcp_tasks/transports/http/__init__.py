"""Streamable HTTP: one core, two thin adapters (a Django view, and an ASGI endpoint before Django's handler)."""
