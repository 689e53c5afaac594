"""Problems of any environment: their splits and manifests, and the rule that keeps splits disjoint."""
