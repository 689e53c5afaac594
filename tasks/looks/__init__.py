"""Plans, sweeps and looks at a test split, recorded in git, and what a verdict reports about them."""
