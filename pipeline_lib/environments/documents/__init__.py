"""Agents with different documents answer a question together, by messages that have a price."""
