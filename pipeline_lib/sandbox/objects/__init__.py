"""Objects of a program in the hands of tests: the one interface is `Handles`; a plain value needs none of it.

The program's side is `inside.objects`.
"""

from pipeline_lib.sandbox.objects.classes import exception, is_class, is_handle
from pipeline_lib.sandbox.objects.handles import Handles

__all__ = ["Handles", "exception", "is_class", "is_handle"]
