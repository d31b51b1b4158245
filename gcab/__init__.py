"""Teach a vision transformer new classes, again and again, without keeping a single old image."""

from typing import TYPE_CHECKING, Any

from gcab.version import VERSION

if TYPE_CHECKING:
    from gcab.learner import ContinualClassifier

__all__ = ["ContinualClassifier", "__version__"]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Load torch only when the classifier is asked for, so that the command line answers at once."""
    if name == "ContinualClassifier":
        from gcab.learner import ContinualClassifier

        return ContinualClassifier
    raise AttributeError(f"module 'gcab' has no attribute '{name}'")
