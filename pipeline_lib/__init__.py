"""Symposium's library: the science and the engines.

It knows neither Prefect nor DVC, and only ``pipeline_lib.tracking`` knows MLflow.  Settings models
(``pipeline_lib.settings``, pydantic) are imported by engines and training for type checking only, so these also
run where nothing but torch, transformers, peft and scipy is installed.
"""
