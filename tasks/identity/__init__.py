"""What each stage depends on, as one digest and as files for DVC; and the name of a run."""
