"""A trained team in use: shown in the terminal, served over HTTP, exported."""
