"""What an experiment consists of: arms, comparisons, teams, plan, and the locations of their files."""
