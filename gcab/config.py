"""The resolved configuration of a run: defaults < profile < preset < command line; nothing changes it afterwards."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gcab.data.augment import AugmentConfig
from gcab.data.registry import DATASETS, SCENARIOS, dataset
from gcab.data.scenario import ScenarioConfig
from gcab.errors import GcabError, check_options, unknown
from gcab.flaws import is_usable
from gcab.methods.registry import method_named
from gcab.model.encoder import EncoderConfig
from gcab.pretrained.source import describe
from gcab.profiles import DEFAULT_PROFILE, PROFILES
from gcab.sizes import Size, parse_size, pixels, sides, size_name
from gcab.training.schedule import TrainingConfig

Overrides = Mapping[str, Any]


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run computes; where it is written and on which device is not part of it."""

    method: str = "gcab"
    profile: str = "extended"
    seed: int = 1
    scenario: ScenarioConfig = field(default_factory=ScenarioConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    options: Any = None  # the method's own dataclass

    @property
    def epochs(self) -> list[int]:
        """The epochs of every task that is trained."""
        kind = method_named(self.method)
        tasks = 1 if kind.joint else self.scenario.tasks
        return [self.training.epochs_of(task) if kind.trains else 0 for task in range(tasks)]

    def features_per_batch(self) -> int:
        """The number of values that the encoder outputs in a training step."""
        return self.training.batch_size * self.encoder.tokens(self.scenario.image_size) * self.encoder.width

    def check(self) -> None:
        """Refuse combinations that cannot be built."""
        encoder, size = self.encoder, self.scenario.image_size
        check_options(encoder, ("blocks", "width", "heads", "mlp_ratio", "patch"), section="encoder")
        if not 0 <= encoder.drop_path < 1:
            raise GcabError(f"encoder.drop_path is {encoder.drop_path}: give a share from 0 to below 1.")
        if encoder.kind == "pretrained" and not encoder.weights:
            raise GcabError(
                "encoder.kind pretrained needs encoder.weights: give a folder of the transformers library, an ONNX "
                "file or a name."
            )
        convolutional = encoder.kind in ("resnet18", "pretrained")  # which have no patches of these settings
        if encoder.kind == "resnet18" and encoder.width % 8:
            raise GcabError(f"encoder.width {encoder.width} is not a multiple of 8, which encoder.kind resnet18 needs.")
        if not convolutional and encoder.width % encoder.heads:
            raise GcabError(f"encoder.width {encoder.width} is not a multiple of encoder.heads {encoder.heads}.")
        if min(sides(size)) < 1 or (not convolutional and any(side % encoder.patch for side in sides(size))):
            raise GcabError(
                f"scenario.image_size {size_name(size)} is not a multiple of encoder.patch {encoder.patch}: change one."
            )
        if isinstance(size, tuple) and (encoder.kind == "pretrained" or method_named(self.method).square):
            what = f"the method {self.method}" if method_named(self.method).square else "a pretrained encoder"
            raise GcabError(f"{what} needs square images, not {pixels(size)}: give scenario.image_size one number.")
        if not 0 <= self.scenario.validation < 1:
            raise GcabError(f"scenario.validation is {self.scenario.validation}: give a share from 0 to below 1.")
        if self.scenario.tasks < 1:
            raise GcabError(f"scenario.tasks is {self.scenario.tasks}: give 1 or more.")
        if self.augment.cutmix > 0 and not method_named(self.method).mixes:
            raise GcabError(f"{self.method} does not learn from mixed images: leave augment.cutmix at 0.")


SCENARIO_KEYS = {"scenario.name", "scenario.dataset", "scenario.tasks"}  # what a scenario's name says


def resolve(
    scenario: str, method: str, profile: str = DEFAULT_PROFILE, seed: int = 1, changes: Overrides | None = None
) -> RunConfig:
    """The one way to a configuration: defaults < profile < preset < `changes` (text or typed values)."""
    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    kind = method_named(method)
    if fixed := sorted(SCENARIO_KEYS & set(changes or {})):
        raise GcabError(f"{fixed[0]} cannot be changed, it follows from the scenario: give another than {scenario}.")
    config = RunConfig(method=method, profile=profile, seed=seed, options=kind.Options())
    has = {key for key, _, _ in leaves(config)}
    preset = {key: value for key, value in scenario_preset(scenario).items() if key in has}
    for layer in (PROFILES[profile], kind.profiles.get(profile, {}), preset, changes or {}):
        config = override(config, layer)
    config.check()
    return with_pretrained(config)


def with_pretrained(config: RunConfig) -> RunConfig:
    """The sizes that follow from a pretrained encoder; others stay as they are."""
    if config.encoder.kind != "pretrained":
        return config
    shape = describe(config.encoder.weights).shape
    width = shape.get("width", shape.get("features", config.encoder.width))
    heads = shape.get("heads", max(count for count in (1, 2, 3, 4, 6, 8, 12) if width % count == 0))
    return dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, width=width, heads=heads))


def scenario_preset(name: str) -> dict[str, Any]:
    """What the name of a scenario, such as cifar100/10, says: its data set's preset and the number of tasks."""
    source, _, tasks = name.partition("/")
    if source not in DATASETS or not tasks.isdigit() or int(tasks) < 1:
        raise unknown("scenario", name, (*SCENARIOS, "folder/2"))
    info = dataset(source)
    return {
        "scenario.name": name,
        "scenario.dataset": source,
        "scenario.tasks": int(tasks),
        "scenario.image_size": info.size,
        "augment.crop": info.crop,
        "augment.flip": info.flip,
        **info.preset,
    }


@cache
def types_of(kind: type) -> dict[str, Any]:
    """The types of a class's settings, cached, as evaluating them each time is slow."""
    return get_type_hints(kind)


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every setting as (dotted key, type, value)."""
    hints = types_of(config.__class__)
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, hints[item.name], value


def override(config: Any, changes: Overrides) -> Any:
    """A copy with dotted keys replaced; text is read as the setting's type."""
    known = {key: kind for key, kind, _ in leaves(config) if key not in ("method", "profile")}  # they choose the rest
    for key, value in changes.items():
        if key not in known:
            raise unknown("setting", key, known)
        config = _replace(config, key.split("."), parse(key, known[key], value) if isinstance(value, str) else value)
    return config


def _replace(config: Any, path: list[str], value: Any) -> Any:
    inner = value if len(path) == 1 else _replace(getattr(config, path[0]), path[1:], value)
    return dataclasses.replace(config, **{path[0]: inner})


def parse(key: str, kind: Any, text: str) -> Any:
    """Text from a command line as the type of a setting."""
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise unknown(f"value for {key}", text, get_args(kind))
        return text
    try:
        if kind == Size:
            return parse_size(text)
        if kind is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if get_origin(kind) is tuple:
            return tuple(int(part) for part in text.split(",") if part.strip())
        return kind(text)
    except (KeyError, ValueError):
        raise GcabError(f"{key} cannot be '{text}': give {describe_type(kind)}.") from None


def describe_type(kind: Any) -> str:
    """A type in words, for help and error messages."""
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return "whole numbers with commas between"
    if kind == Size:
        return "pixels, or height x width as 48x96"
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")


def to_dict(config: RunConfig) -> dict[str, Any]:
    """The configuration as JSON writes it."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return plain


def from_dict(stored: Mapping[str, Any]) -> RunConfig:
    """The configuration of a stored run or model."""
    base = RunConfig(options=method_named(stored["method"]).Options())
    config: RunConfig = _fill(base, stored, "")
    config.check()
    return config


def fits(value: Any, kind: Any) -> bool:
    """Whether a stored value is of a setting's type."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind == Size:
        return fits(value, int) or (isinstance(value, tuple) and len(value) == 2 and fits(value, tuple[int, int]))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(fits(item, int) for item in value)
    if kind is float:
        return fits(value, int) or (isinstance(value, float) and is_usable(value))
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and is_usable(value)
    return isinstance(value, kind)


def _fill(config: Any, stored: Mapping[str, Any], prefix: str) -> Any:
    names = {item.name for item in dataclasses.fields(config)}
    for name in stored:
        if name not in names:
            raise unknown("setting", prefix + name, names)
    hints, values = types_of(config.__class__), {}
    for name, value in stored.items():
        inner, key = getattr(config, name), prefix + name
        if dataclasses.is_dataclass(inner):
            if not isinstance(value, Mapping):
                raise GcabError(f"{key} is {value!r}: it must be a group of settings.")
            values[name] = _fill(inner, value, f"{key}.")
            continue
        values[name] = tuple(value) if isinstance(value, list) else value
        if not fits(values[name], hints[name]):
            raise GcabError(f"{key} is {value!r}: it must be {describe_type(hints[name])}.")
    return dataclasses.replace(config, **values)


def config_hash(config: RunConfig) -> str:
    """A hash of a configuration without its seed, so that seeds of one setting lie side by side."""
    content = to_dict(config)
    del content["seed"]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
