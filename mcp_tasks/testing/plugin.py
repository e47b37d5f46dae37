"""Fixtures for pytest, found by its entry point. Everything of Django is imported when a fixture is used."""
