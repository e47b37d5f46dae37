"""Optional parts: what a project mounts or adds to INSTALLED_APPS. Nothing here is imported by the rest."""
