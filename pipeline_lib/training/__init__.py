"""MAGRPO: advantages, loss, update, checkpoints."""
