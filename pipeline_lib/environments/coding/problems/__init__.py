"""Coding problems: generated ones, and the published datasets."""
