"""System checks: ids, messages and hints together."""
