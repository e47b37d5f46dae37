"""What admin, REST, commands and metrics share."""
