"""Two agents with different private constraints agree on a plan that suits both; every word has a price."""
