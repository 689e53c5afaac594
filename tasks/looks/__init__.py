"""Plans, sweeps and looks at a test split, remembered by git, and what a verdict says of them."""
