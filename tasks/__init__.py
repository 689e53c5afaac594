"""Tasks: one call into the library each, wrapped: cache key, retries, timeout, progress, tracking."""
