"""The command line of: export."""

from gcab.commands.verbs import AddVerb


def register(verb: AddVerb) -> None:
    """Add the verbs of this file."""
