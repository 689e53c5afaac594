"""The stages as DVC knows them: which are stale, running them side by side, workspaces of experiments."""
