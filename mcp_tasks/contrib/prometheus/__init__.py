"""
Prometheus metrics: add ``mcp_tasks.contrib.prometheus`` to INSTALLED_APPS, and mount a view of ``views``.

Needs ``prometheus_client`` (the extra ``prometheus``); without it the app counts nothing and says so in a check.
"""
