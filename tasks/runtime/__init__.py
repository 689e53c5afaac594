"""A stage as a running program: tracking, progress, cached values, how it ends."""
