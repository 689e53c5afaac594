"""The short form of an environment: one turn, problems that are texts, a class of about 20 lines."""
