"""What two texts say of their source: exactly for generated sources, by words for published ones."""
