"""The reward audit: does this reward pay for something nobody wants?  Asked before any training.

`result` is what an audit says, `ladder` compares teams whose worth is known, `coding` and `philosophers` bring such
teams and the checks that only their environment allows, `preflight` looks at the base policy, and `run` is the entry.
"""
