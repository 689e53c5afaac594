"""Processes, their environment, and the servers that they talk to."""
