"""Teach a vision transformer new classes, again and again, without keeping a single old image."""

import importlib
from typing import TYPE_CHECKING, Any

from gcab.errors import GcabError
from gcab.version import VERSION

if TYPE_CHECKING:
    from gcab.classifier.learner import ContinualClassifier
    from gcab.classifier.model_folder import ModelFolder
    from gcab.classifier.teaching import teach

__all__ = ["ContinualClassifier", "GcabError", "ModelFolder", "__version__", "teach"]
__version__ = VERSION

HOMES = {
    "ContinualClassifier": "gcab.classifier.learner",
    "ModelFolder": "gcab.classifier.model_folder",
    "teach": "gcab.classifier.teaching",
}


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load torch only when something needs it, so that the command line answers at once."""
    if name not in HOMES:
        raise AttributeError(f"module 'gcab' has no attribute '{name}'")
    return getattr(importlib.import_module(HOMES[name]), name)
