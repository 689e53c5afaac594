"""What each stage depends on, as one value, as files that DVC sees, and the name of a run."""
