"""Identity: who calls, and whose tasks these are."""
