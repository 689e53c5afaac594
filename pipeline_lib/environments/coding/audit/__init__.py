"""The audit of a coding reward: scripted teams, and training in miniature on a menu of functions."""
