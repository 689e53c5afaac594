"""``params.yaml`` as one typed, validated, immutable model, a file here per section.

This is the only package of the library that needs pydantic; engines and training import it for type checking only.
"""

from pipeline_lib.settings.load import SettingsError, load_params
from pipeline_lib.settings.params import Params

__all__ = ["Params", "SettingsError", "load_params"]
