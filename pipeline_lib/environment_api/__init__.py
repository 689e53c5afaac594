"""The interface of an environment, used by all packages that play, train and evaluate; see `environments`."""
