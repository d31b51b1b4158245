"""Metadata of a method: its publication, what it stores, and its place on the CLEVA-Compass."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["", "supervised", "unsupervised"]  # does not apply; applies with the help of labels, or without


@dataclass(frozen=True)
class Compass:
    """The inner level of the CLEVA-Compass (Mundt et al., ICLR 2022): what applies, and whether that takes labels.

    No method here is told the task of an image. `task_agnostic` is `supervised` where outputs are divided by task: by
    heads, tokens or gates that only the labels of their own task train.
    """

    multiple_models: Level = ""
    federated: Level = ""
    online: Level = ""
    open_world: Level = ""
    multiple_modalities: Level = ""
    active_data_query: Level = ""
    task_order_discovery: Level = ""
    task_agnostic: Level = "unsupervised"
    episodic_memory: Level = ""  # supervised: labels decide which images or prototypes it holds
    generative: Level = ""
    uncertainty: Level = ""


@dataclass(frozen=True)
class Card:
    """One line each for docs/reference.md, and the entries of the CLEVA-Compass."""

    source: str = "–"  # the publication
    stores: str = "nothing"  # between tasks, beside the network
    differs: str = "–"  # from the publication, by default
    compass: Compass = Compass()
