"""Feedback: what an agent is shown of a turn in later turns, from the sources that ``environment.feedback`` names.

Promises of all sources: nothing comes from hidden tests, or from a process that has seen them.  Nothing comes from
another agent's text, except what its code made the visible tests report.
"""
