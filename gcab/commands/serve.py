"""The command line of: serve."""

from gcab.commands.verbs import AddVerb


def register(verb: AddVerb) -> None:
    """Add the verbs of this file."""
