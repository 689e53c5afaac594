"""A stage as a running program: tracking, progress, cached values, exit status."""
