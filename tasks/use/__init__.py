"""A trained team in use: watched, asked over HTTP, taken elsewhere."""
