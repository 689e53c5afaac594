"""Processes, their environment, and servers."""
