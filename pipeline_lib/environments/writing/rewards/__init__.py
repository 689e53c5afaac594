"""Rewards of a writing team."""
