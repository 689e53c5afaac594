"""Tasks: wrappers around calls of the library: cache key, retries, timeout, progress, tracking."""
