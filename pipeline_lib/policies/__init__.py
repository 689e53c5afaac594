"""Policies: the language models of a team; building, loading, adapters, chat templates, warm start."""
