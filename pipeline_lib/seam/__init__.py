"""What everything that plays, trains and measures knows of an environment; each environment lies in `environments`."""
