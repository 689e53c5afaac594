"""Environments: cooperative Dec-POMDPs in which a team of language models acts."""
