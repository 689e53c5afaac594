"""Any dataset of reasoning-gym, as a question that a team answers together or one agent alone."""
