"""Two agents write one letter each without seeing each other's, and the letters must match."""
