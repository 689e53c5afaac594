"""Any parallel game of PettingZoo with a finite choice of actions, played by models from text."""
