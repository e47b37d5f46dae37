"""A site that tells everything: every logger at DEBUG, every field of every record, SQL with its values."""
