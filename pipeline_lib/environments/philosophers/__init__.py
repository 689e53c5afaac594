"""Dining philosophers: N agents share forks, and a meal needs two of them."""
