"""``manage.py demo`` for this site, on which the app that has the command is not installed."""

from project.management.commands.demo import Command

__all__ = ["Command"]
