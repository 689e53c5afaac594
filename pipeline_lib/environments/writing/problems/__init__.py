"""The source texts: a generated world with known facts, and published datasets."""
