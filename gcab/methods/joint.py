"""Joint training: all classes at once, the paper's upper bound."""

from typing import ClassVar

from gcab.methods.card import Card
from gcab.methods.finetune import Finetune


class Joint(Finetune):
    """Fine-tuning on a stream whose tasks were merged into one."""

    summary = "trains on all tasks' images at once (upper bound; not a continual learner)"
    card: ClassVar[Card] = Card()
    joint = True
