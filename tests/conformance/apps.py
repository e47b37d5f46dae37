"""The fixture server of the official conformance suite, as a Django app."""

from django.apps import AppConfig


class ConformanceConfig(AppConfig):
    """Its ``mcp_tools`` is the only one of the site: the suite calls tools by names that the demo site uses too."""

    name = "tests.conformance"
    label = "conformance"
