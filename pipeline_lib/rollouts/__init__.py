"""Rollout engines: prompts in; token ids, text and log-probabilities out."""

from pipeline_lib.rollouts.engine import Action, Counters, Engine, EngineError, Request, Sampling
from pipeline_lib.rollouts.make import make_engine

__all__ = ["Action", "Counters", "Engine", "EngineError", "Request", "Sampling", "make_engine"]
