"""Tasks: wrappers around calls of the library: cache key, progress, tracking."""
