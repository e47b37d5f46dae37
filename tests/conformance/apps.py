"""The fixture server of the official conformance suite, as a Django app."""

from django.apps import AppConfig


class ConformanceConfig(AppConfig):
    """Its tools are the only ones of the site: the suite calls some by names that the demo site uses too."""

    name = "tests.conformance"
    label = "conformance"
