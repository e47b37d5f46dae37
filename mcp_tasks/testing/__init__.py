"""What host projects test with: a client, time travel, fixtures, and the contract that every store passes."""
