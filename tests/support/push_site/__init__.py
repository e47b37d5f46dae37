"""A site for tests of push: the fault tests' own, with a channel layer, tools that only wait, and its inner numbers."""
