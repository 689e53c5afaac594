"""The audit of a writing reward: scripted writers whose worth is known."""
