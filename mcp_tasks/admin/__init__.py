"""
Tasks in Django's admin, for operators: everything can be looked at, and changed only by named verbs.

Django finds this package by itself where its admin is installed.
"""

from django.apps import apps

__all__ = ["TaskAdmin"]

from .site import TaskAdmin

if apps.is_installed("django.contrib.admin"):
    from django.contrib import admin

    from ..models import Task

    if not admin.site.is_registered(Task):
        admin.site.register(Task, TaskAdmin)
