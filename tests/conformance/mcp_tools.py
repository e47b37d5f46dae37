"""
What the official conformance suite calls, by the names and with the behaviour that it documents.

The order of the imports is the order of ``tools/list``: ``answers`` comes first, because the suite probes the
headers with the first tool of the list and sends it no arguments.
"""

from . import answers, jobs, methods, questions

__all__ = ["answers", "jobs", "methods", "questions"]
