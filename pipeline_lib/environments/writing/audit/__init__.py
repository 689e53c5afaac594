"""The audit of a writing reward: scripted writers of known value."""
