"""How two texts are compared with their source: exactly for generated sources, by words for published ones."""
