"""Tools of the test project."""
