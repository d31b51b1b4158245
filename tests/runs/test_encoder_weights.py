"""`encoder.weights`: a run starts with the encoder of another, and is afterwards a model of its own."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gcab.config import RunConfig, resolve
from gcab.data.tasks import Task
from gcab.errors import GcabError
from gcab.methods.method import Method, grow
from gcab.runs.assemble import build_method, load_method, save_method

TASK = Task(0, 0, ("ash", "elm"))
SMALL = {"encoder.width": 16, "encoder.blocks": 1, "options.eye": 64}


def config(method: str, changes: dict[str, object] | None = None, seed: int = 1) -> RunConfig:
    small = {key: value for key, value in SMALL.items() if method == "gcab" or not key.startswith("options.")}
    return resolve("digits/5", method, seed=seed, changes={**small, **(changes or {})})


def saved(folder: Path, method: str = "gcab") -> Method:
    made = build_method(config(method))
    grow(made, TASK, 1)
    made.setting = made.setting.__class__(made.setting.encoder, 8, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    save_method(folder, made, config(method), [TASK])
    return made


def encoder_of(method: Method) -> dict[str, Tensor]:
    return {name: value for name, value in method.state_dict().items() if "encoder." in name}


@pytest.mark.parametrize("place", ["model", "run/model", "birds/generation-0001"])
def test_the_encoder_and_the_pixels_it_knows_are_taken_over(place: str, tmp_path: Path) -> None:
    source = saved(tmp_path / place)
    given = str(tmp_path / place.split("/")[0])
    started = build_method(config("gcab", {"encoder.weights": given}, seed=2))
    other = build_method(config("gcab", seed=2))
    assert encoder_of(started).keys() == encoder_of(source).keys()
    for name, value in encoder_of(source).items():
        assert torch.equal(encoder_of(started)[name], value)
    assert not torch.equal(
        encoder_of(other)["network.encoder.position"], encoder_of(source)["network.encoder.position"]
    )
    assert (started.setting.mean, started.setting.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert started.setting.weights is None, "a second copy of the encoder would stay in memory"


def test_the_model_afterwards_does_not_need_the_other(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    own = config("gcab", {"encoder.weights": str(tmp_path / "model")})
    method = build_method(own)
    grow(method, TASK, 1)
    save_method(tmp_path / "own", method, own, [TASK])
    shutil.rmtree(tmp_path / "model")
    loaded, _, _ = load_method(tmp_path / "own")
    assert loaded.setting.mean == (0.1, 0.2, 0.3)
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.equal(loaded.predict(images), method.eval().predict(images))


def test_what_has_no_fitting_encoder_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    with pytest.raises(GcabError, match="another shape"):
        build_method(config("gcab", {"encoder.weights": str(tmp_path / "model"), "encoder.width": 32}))
    with pytest.raises(GcabError, match="there is no model in"):
        build_method(config("gcab", {"encoder.weights": str(tmp_path / "nowhere")}))
    saved(tmp_path / "eye", "eye")
    with pytest.raises(GcabError, match="no encoder to start from"):
        build_method(config("gcab", {"encoder.weights": str(tmp_path / "eye")}))
