"""What a host project writes against: ``@tool``, the context of a handler, its results and its questions."""
