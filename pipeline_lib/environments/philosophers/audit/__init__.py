"""The audit of a philosophers' reward: scripted policies, a lint of its terms, searches, and training in miniature."""
