"""The interface of an environment, which all packages that play, train and measure use; see `environments`."""
