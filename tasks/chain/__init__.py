"""The stages as DVC sees them: which are stale, running them side by side, workspaces of experiments."""
