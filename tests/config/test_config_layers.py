"""Configurations: which layer wins, what is refused and how, and what names a run."""

import dataclasses
import json
from typing import Any, Literal, get_args, get_origin

import pytest

from gcab.config import RunConfig, config_hash, describe_type, from_dict, leaves, override, resolve, to_dict
from gcab.errors import GcabError
from gcab.methods.gcab import GcabOptions
from gcab.model.encoder import EncoderConfig
from gcab.profiles import DEFAULT_PROFILE


def value_of(config: RunConfig, key: str) -> Any:
    return {name: value for name, _, value in leaves(config)}[key]


def test_a_profile_beats_the_defaults() -> None:
    assert resolve("cifar100/10", "gcab", "official").encoder == EncoderConfig(drop_path_over="network")
    assert resolve("cifar100/10", "gcab", "paper").encoder.kind == "vit"


def test_a_methods_own_profile_applies_to_its_options() -> None:
    assert resolve("cifar100/10", "gcab", "official").options.network.head_init == "default"
    assert resolve("cifar100/10", "gcab", "paper").options.network.projector == "mlp"
    assert resolve("cifar100/10", "gcab", "extended").options.statistics is True
    assert resolve("cifar100/10", "gcab") == resolve("cifar100/10", "gcab", DEFAULT_PROFILE)


def test_a_preset_beats_the_profile() -> None:
    assert resolve("cifar100/10", "finetune", "paper").training.lr == 1e-4
    digits = resolve("digits/5", "finetune", "paper")
    assert digits.training.lr == 1e-3
    assert digits.training.optimiser == "adam"  # where the preset is silent, the profile stands


def test_changes_beat_everything() -> None:
    changes = {"training.lr": 0.5, "encoder.kind": "convit", "options.network.projector": "normed"}
    config = resolve("digits/5", "gcab", "paper", changes=changes)
    assert (config.training.lr, config.encoder.kind) == (0.5, "convit")
    assert config.options.network.projector == "normed"


def test_the_scenario_name_says_data_set_and_tasks() -> None:
    config = resolve("tiny-imagenet/20", "er", seed=7)
    assert (config.scenario.dataset, config.scenario.tasks, config.scenario.image_size) == ("tiny-imagenet", 20, 64)
    assert (config.seed, config.method, config.scenario.name) == (7, "er", "tiny-imagenet/20")
    assert config.augment.crop == "resized"


def test_nothing_changes_a_configuration_afterwards() -> None:
    config = resolve("digits/5", "gcab")
    for part, name in ((config, "seed"), (config.training, "lr"), (config.options.network, "gates")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, 3)
    assert override(config, {"training.lr": 0.5}).training.lr == 0.5
    assert config.training.lr == 1e-3


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("training.epochs", "7", 7),
        ("training.lr", "1e-2", 0.01),
        ("augment.flip", "yes", True),
        ("options.compensation", "False", False),
        ("scenario.sizes", "4, 3,3", (4, 3, 3)),
        ("encoder.kind", "vit", "vit"),
    ],
)
def test_text_is_read_as_the_type_of_the_setting(key: str, text: str, value: object) -> None:
    found = value_of(resolve("digits/3", "gcab", changes={key: text}), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("training.epoch", "3", "unknown setting 'training.epoch': did you mean 'training.epochs'?"),
        ("options.lamda_pfr", "3", "did you mean 'options.lambda_pfr'?"),
        ("training", "3", "unknown setting 'training'"),
        ("encoder.kind", "vitt", "unknown value for encoder.kind 'vitt': did you mean 'vit'?"),
        ("training.epochs", "ten", "training.epochs cannot be 'ten': give a whole number"),
        ("training.lr", "fast", "training.lr cannot be 'fast': give a number"),
        ("augment.flip", "maybe", "augment.flip cannot be 'maybe': give true or false"),
        ("scenario.sizes", "4;6", "scenario.sizes cannot be '4;6': give whole numbers with commas between"),
        ("training.epochs", 0, "training.epochs is 0: give a number greater than 0"),
        ("training.batch_size", -1, "training.batch_size is -1"),
        ("training.lr", 0.0, "training.lr is 0.0"),
        ("training.weight_decay", -0.1, "training.weight_decay is -0.1: give 0 or more"),
        ("training.clip", -1.0, "training.clip is -1.0: give 0 or more"),
        ("training.lr_lag", -1, "training.lr_lag is -1: give 0 or more"),
        ("encoder.heads", 5, "encoder.width 64 is not a multiple of encoder.heads 5"),
        ("encoder.patch", 3, "scenario.image_size 8 is not a multiple of encoder.patch 3"),
        ("encoder.patch", 16, "scenario.image_size 8 is not a multiple of encoder.patch 16"),
        ("scenario.validation", 1.0, "scenario.validation is 1.0: give a share from 0 to below 1"),
        ("scenario.validation", -0.1, "scenario.validation is -0.1"),
        ("scenario.tasks", 2, "scenario.tasks cannot be changed, it follows from the scenario: give another than"),
        ("scenario.name", "../out", "scenario.name cannot be changed, it follows from the scenario"),
        ("augment.crop", "padd", "unknown value for augment.crop 'padd': did you mean 'pad'?"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(key: str, value: object, sentence: str) -> None:
    with pytest.raises(GcabError) as refused:
        resolve("digits/5", "gcab", changes={key: value})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("scenario", "method", "profile", "sentence"),
    [
        ("cifr100/5", "gcab", "paper", "unknown scenario 'cifr100/5': did you mean 'cifar100/5'?"),
        ("cifar100", "gcab", "paper", "unknown scenario 'cifar100': did you mean 'cifar100/"),
        ("cifar100/0", "gcab", "paper", "unknown scenario 'cifar100/0'"),
        ("cifar100/-5", "gcab", "paper", "unknown scenario 'cifar100/-5'"),
        ("digits/5", "gacb", "paper", "unknown method 'gacb': did you mean 'gcab'?"),
        ("digits/5", "gcab", "papers", "unknown profile 'papers': did you mean 'paper'?"),
    ],
)
def test_unknown_names_come_with_the_nearest(scenario: str, method: str, profile: str, sentence: str) -> None:
    with pytest.raises(GcabError) as refused:
        resolve(scenario, method, profile)
    assert sentence in str(refused.value)


def another(kind: Any, value: Any) -> Any:
    """A different value of the same type."""
    if get_origin(kind) is Literal:
        return next(choice for choice in get_args(kind) if choice != value)
    if kind is bool:
        return not value
    if get_origin(kind) is tuple:
        return (*value, 1)
    return f"{value}!" if kind is str else value + 1


def test_the_hash_names_everything_but_the_seed() -> None:
    config = resolve("digits/5", "gcab", "paper")
    names = {config_hash(config)}
    keys = [(key, kind, value) for key, kind, value in leaves(config) if key not in ("seed", "method", "profile")]
    assert len(keys) > 50
    for key, kind, value in keys:
        share = isinstance(value, float) and (key.startswith("augment.") or key == "training.held_out")
        names.add(config_hash(override(config, {key: value / 2 or 0.5 if share else another(kind, value)})))
    assert len(names) == len(keys) + 1, "two configurations share a name"
    assert config_hash(resolve("digits/5", "gcab", "paper", seed=2)) == config_hash(config)


def test_a_stored_configuration_has_the_same_name() -> None:
    config = RunConfig(options=GcabOptions())
    assert config_hash(config) == config_hash(from_dict(to_dict(config)))
    assert len(config_hash(config)) == 8


def test_a_schedule_that_is_all_warm_up_is_pointed_out() -> None:
    assert resolve("digits/5", "gcab").training.caution() is None
    caution = resolve("digits/5", "gcab", changes={"training.epochs": 5}).training.caution()
    assert caution is not None
    assert "are all warm-up (training.warmup_epochs 5)" in caution
    alone = resolve("digits/5", "gcab", changes={"training.epochs": 1}).training.caution()
    assert alone is not None
    assert alone.startswith("the one epoch a task is all warm-up")
    late = {"training.epochs": 6, "training.lr_lag": 1}  # epochs 1 to 6 have the rates of 1, 1, 2, 3, 4, 5
    assert resolve("digits/5", "gcab", changes={"training.epochs": 6}).training.caution() is None
    assert resolve("digits/5", "gcab", changes=late).training.caution() is not None
    assert resolve("digits/5", "gcab", changes={**late, "training.warmup_epochs": 0}).training.caution() is None


@pytest.mark.parametrize("method", ["gcab", "er"])
def test_a_configuration_survives_json(method: str) -> None:
    changes = {"scenario.sizes": (4, 6), "training.lr": 0.1 + 0.2}
    config = resolve("digits/2", method, "paper", seed=3, changes=changes)
    again = from_dict(json.loads(json.dumps(to_dict(config))))
    assert again == config
    assert type(again.options) is type(config.options)
    assert again.scenario.sizes == (4, 6)


def test_a_stored_configuration_from_before_a_setting_does_what_it_did() -> None:
    """Runs of `official` before it followed the authors in these points."""
    stored = to_dict(resolve("digits/5", "gcab", "official"))
    del stored["encoder"]["drop_path_over"], stored["training"]["lr_lag"], stored["options"]["network"]["head_init"]
    stored["options"]["gate_gradient"] = "compensated"
    config = from_dict(stored)
    assert (config.encoder.drop_path_over, config.training.lr_lag) == ("encoder", 0)
    assert config.options.network.head_init == "truncated"
    assert config.options == GcabOptions()


def test_extended_has_none_of_what_only_the_authors_have() -> None:
    config = resolve("digits/5", "gcab", "extended")
    assert (config.encoder.drop_path_over, config.training.lr_lag) == ("encoder", 0)
    assert (config.options.gate_gradient, config.options.network.head_init) == ("compensated", "truncated")


def test_a_stored_setting_this_version_does_not_know_is_named() -> None:
    stored = to_dict(resolve("digits/5", "gcab"))
    stored["options"]["network"]["gate_mode"] = 1
    with pytest.raises(GcabError, match=r"unknown setting 'options\.network\.gate_mode'"):
        from_dict(stored)


def test_types_are_described_in_words() -> None:
    kinds = {key: describe_type(kind) for key, kind, _ in leaves(resolve("digits/5", "gcab"))}
    assert kinds["training.optimiser"] == "adamw | adam | sgd"
    assert kinds["training.epochs"] == "a whole number"
    assert kinds["scenario.name"] == "text"
