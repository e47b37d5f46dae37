"""REST: one's own task by its capability, and everything that operators see and do."""
