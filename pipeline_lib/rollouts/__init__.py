"""Rollout engines: they turn prompts into token ids, text and log-probabilities."""

from pipeline_lib.rollouts.engine import Action, Counters, Engine, EngineError, Request, Sampling

__all__ = ["Action", "Counters", "Engine", "EngineError", "Request", "Sampling"]
