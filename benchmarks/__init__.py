"""Measurements that are made on purpose, not in tests: speed, calibration, overheads."""
