"""Evaluation: episodes, metrics, cooperation schemes, statistics, selection and verdicts."""
