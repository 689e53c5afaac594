"""Makes a team from the settings and trains, audits or opens it, for the stages and for ``import symposium``."""
