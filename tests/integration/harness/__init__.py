"""What the integration tests stand on: weir as a process, an engine that follows a script, a client that sees bytes."""
