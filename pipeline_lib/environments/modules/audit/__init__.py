"""The audit of a reward for programs in parts: scripted teams of known value."""
