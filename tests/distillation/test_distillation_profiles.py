"""How a run is distilled follows its profile: with `paper` as the text has it, else as we do."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from helpers.settings import train_flags
from helpers.teachers import PROFILES, teacher

from gcab.classifier.distillation import distillation_settings, prepare
from gcab.cli.main import main
from gcab.config import resolve
from gcab.methods.gcab_fast import GcabFast, GcabFastOptions
from gcab.methods.one_pass import Imitation
from gcab.paper.jobs import plan
from gcab.paper.recipes import RECIPES

pytestmark = pytest.mark.repeats

OURS = {"distillation_steps": 16000, "distillation_lr": 1e-3, "temperature": 10.0, "views": 16}
TEXT = {"distillation_steps": 15600, "distillation_lr": 5e-3, "temperature": 1.0, "views": 1}
CHOSEN = {"extended": OURS, "official": OURS, "paper": TEXT}
EPOCHS, IMAGES = 200, 5000  # of the text; of the last task of cifar100/10
SMALL = {"encoder.width": 20, "training.epochs": 1}


def of_distillation(options: GcabFastOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name in OURS}


def test_the_text_counts_in_epochs() -> None:
    steps, batch = TEXT["distillation_steps"], GcabFastOptions().distillation_batch
    assert steps == EPOCHS * (IMAGES // batch)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_way_to_a_student_follows_the_profile(profile: str, tmp_path: Path) -> None:
    for scenario in ("cifar100/10", "digits/5"):
        assert of_distillation(resolve(scenario, "gcab-fast", profile).options) == CHOSEN[profile]
        method, config = teacher(profile), resolve(scenario, "gcab", profile)
        assert of_distillation(prepare(method, config, 0.6)[1].options) == CHOSEN[profile]
        _, changed = prepare(method, config, 0.6, {"options.views": "3"})
        assert of_distillation(changed.options) == {**CHOSEN[profile], "views": 3}
        assert changed.options.capacity == 0.6
    jobs = {job.config.profile: job for job in plan(RECIPES["main"], tmp_path, ["cifar100/10"])}
    wanted = {f"options.{name}": value for name, value in CHOSEN[profile].items()}
    assert jobs[profile].distillation == {**wanted, "options.distillation_batch": 64} == distillation_settings(profile)


def test_what_is_not_of_the_distillation_is_as_gcab_has_it() -> None:
    for profile in PROFILES:
        gcab, fast = (resolve("cifar100/10", method, profile) for method in ("gcab", "gcab-fast"))
        assert asdict(gcab.options).items() <= asdict(fast.options).items()
        assert (gcab.training, gcab.encoder) == (fast.training, fast.encoder)


def test_a_student_is_distilled_again_as_it_was_before() -> None:
    config = resolve("digits/3", "gcab-fast", "paper", changes={"options.temperature": 3.0})
    student = GcabFast(teacher("paper").setting, config.options)
    assert of_distillation(prepare(student, config, 0.5)[1].options) == {**TEXT, "temperature": 3.0}


@pytest.mark.parametrize(("method", "verb"), [("gcab", "distill"), ("gcab-fast", "train")])
def test_the_commands_do_as_the_text_does(
    method: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[GcabFastOptions] = []

    def imitate(self: Imitation, _: object) -> None:
        assert len(self.features) == len(self.logits)
        seen.append(self.options)

    monkeypatch.setattr(Imitation, "run", imitate)
    monkeypatch.setattr(GcabFast, "estimate_seconds", lambda *_: (1.0, 1.0))
    path = str(tmp_path / "run")
    own = ["--options.temperature=2"] if verb == "train" else []
    assert (
        main(
            [
                "train",
                "digits/2",
                *train_flags(method, SMALL, "paper"),
                "--device=cpu",
                "--profile",
                "paper",
                "--run",
                path,
                *own,
            ]
        )
        == 0
    )
    if verb == "distill":
        assert main(["distill", path, "--set", "options.temperature=2", "--device", "cpu"]) == 0
    assert [of_distillation(options) for options in seen] == [{**TEXT, "temperature": 2.0}]
