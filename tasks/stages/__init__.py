"""What several stages of the chain do: play a team's checkpoints, and tell MLflow of the selected team."""
