"""``params.yaml`` as one typed, validated, immutable model, with one file per section.

An environment defines the models of its own sections, which import `base` and `environment` from here.  Therefore this
package imports its other modules on first use.  Engines and training import it for type checking only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline_lib.settings.load import SettingsError, load_params
    from pipeline_lib.settings.params import Params

__all__ = ["Params", "SettingsError", "load_params"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipeline_lib.settings import load

    return getattr(load, name)
