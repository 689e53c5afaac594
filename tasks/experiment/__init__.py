"""The words of the experiment: its arms, comparisons, teams, plan, and where their files lie."""
