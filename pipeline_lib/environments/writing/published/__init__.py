"""The published writing reward (arXiv 2508.04652): kept for comparison, the audit refuses it."""
