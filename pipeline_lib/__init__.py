"""Symposium's library: methods and engines.

It does not depend on Prefect or DVC, and only ``pipeline_lib.tracking`` uses MLflow.  Engines and training import the
settings models (``pipeline_lib.settings``, pydantic) for type checking only, so they also run if only torch,
transformers, peft and scipy are installed.
"""
