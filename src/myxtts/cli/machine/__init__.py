"""Commands about this machine and its settings."""
