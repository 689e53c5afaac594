"""Where texts to be summarised come from: a generated world in which facts are known, and published datasets."""
