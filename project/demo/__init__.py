"""What the ``demo`` command is made of: accounts, the server process, and the guided tour of ``--once``."""
