"""Every scenario with every method under every profile: the configuration resolves and the network can be built."""

import pytest
import torch

from gcab.bench.cost import meta_method
from gcab.config import RunConfig, from_dict, resolve, to_dict
from gcab.data.registry import DATASETS, SCENARIOS, dataset
from gcab.data.scenario import Scenario
from gcab.data.tasks import Task
from gcab.methods.registry import methods
from gcab.model.encoder import Encoder
from gcab.profiles import PROFILES
from gcab.sizes import sides

pytestmark = pytest.mark.repeats

NAMES = (*SCENARIOS, "folder/2")


def test_every_data_set_has_a_scenario() -> None:
    assert {name.split("/")[0] for name in NAMES} == set(DATASETS)


built: set[object] = set()  # networks that differ in no more than the number of classes are built once
asked: set[object] = set()  # encoders, and methods with their options: each is asked about images once


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_builds(name: str, method: str, profile: str) -> None:
    config = resolve(name, method, profile)
    assert from_dict(to_dict(config)) == config
    classes = dataset(config.scenario.dataset).classes or 6
    scenario = Scenario.build(config.scenario, config.seed, [f"class {label}" for label in range(classes)])
    assert sum(task.classes for task in scenario.tasks) == classes
    network = (method, config.encoder, config.options, config.scenario.image_size)
    if network not in built:
        check_network(config, scenario.tasks[:2])
        built.add(network)


def check_network(config: RunConfig, tasks: tuple[Task, ...]) -> None:
    method, size = meta_method(config, tasks), config.scenario.image_size
    assert all(value.is_meta for value in method.state_dict().values() if value.numel() > 1)
    ways = {(config.encoder, size), (config.method, config.options, config.encoder.kind)} - asked
    if ways:
        asked.update(ways)
        for module in method.modules():
            if isinstance(module, Encoder):
                del module.blocks[1:-1]  # images pass each as they pass the last, and on this device slowly
        with torch.inference_mode():
            logits = method.predict(torch.empty(2, 3, *sides(size), device="meta"))
        assert logits.shape == (2, sum(task.classes for task in tasks))
