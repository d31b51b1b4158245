"""Every scenario with every method under every profile: the configuration resolves and the network can be built."""

import pytest
import torch

from gcab.bench.cost import meta_method
from gcab.config import from_dict, resolve, to_dict
from gcab.data.registry import DATASETS, SCENARIOS, dataset
from gcab.data.scenario import Scenario
from gcab.methods.registry import methods
from gcab.profiles import PROFILES

NAMES = (*SCENARIOS, "folder/2")


def test_every_data_set_has_a_scenario() -> None:
    assert {name.split("/")[0] for name in NAMES} == set(DATASETS)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_builds(name: str, method: str, profile: str) -> None:
    config = resolve(name, method, profile)
    assert from_dict(to_dict(config)) == config
    classes = dataset(config.scenario.dataset).classes or 6
    scenario = Scenario.build(config.scenario, config.seed, [f"class {label}" for label in range(classes)])
    tasks = scenario.tasks[:2]
    built = meta_method(config, tasks)
    assert all(value.is_meta for value in built.state_dict().values() if value.numel() > 1)
    size = config.scenario.image_size
    with torch.inference_mode():
        logits = built.predict(torch.empty(2, 3, size, size, device="meta"))
    assert logits.shape == (2, sum(task.classes for task in tasks))
