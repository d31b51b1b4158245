"""Whether an image and its mirror image count as the same: the first lesson decides, and a model keeps to it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.commands import succeeds
from helpers.photos import Pixels, save_photos
from helpers.settings import TINY, TINY_GCAB
from torch.nn import functional

from gcab import ContinualClassifier
from gcab.classifier import learner
from gcab.classifier.mirrors import BLIND, CHOSEN, Trial, leave_one_out, try_mirrors
from gcab.classifier.plan import plan
from gcab.classifier.teaching import teach
from gcab.data.tasks import TaskImages
from gcab.model.discriminant import ridge

CPU = torch.device("cpu")
SMALL = {"options.features": 64}
SIDE, TILES, COUNT = 16, 4, 8


def blotches(name: int, turned: bool | None, count: int = COUNT, noise: float = 0.7) -> Pixels:
    """Photos of a class: a pattern under much noise, as it is or turned, or (None) one or the other by chance."""
    pattern = np.random.default_rng(name + 7).integers(0, 200, (TILES, TILES, 3))
    large = pattern.repeat(SIDE // TILES, axis=0).repeat(SIDE // TILES, axis=1)
    chance = np.random.default_rng([name, 0 if turned is None else 1 + turned])
    ways = chance.random(count) < 0.5 if turned is None else np.full(count, turned)
    shown = np.stack([large[:, ::-1] if way else large for way in ways])
    return (shown * (1 - noise) + chance.integers(0, 256, shown.shape) * noise).astype(np.uint8)


def things(classes: int) -> tuple[Pixels, list[str]]:
    """Classes that are seen from either side."""
    names = [f"thing {number}" for number in range(classes) for _ in range(COUNT)]
    return np.concatenate([blotches(number, None) for number in range(classes)]), names


def signs(name: int, count: int = COUNT) -> tuple[Pixels, list[str]]:
    """Two classes that are each other's mirror image."""
    shown = [blotches(name, turned, count, noise=0.4) for turned in (False, True)]
    return np.concatenate(shown), ["to the left"] * count + ["to the right"] * count


def tried(*parts: tuple[Pixels, list[str]]) -> Trial:
    names = [name for _, names in parts for name in names]
    labels = torch.from_numpy(np.unique(names, return_inverse=True)[1])
    images = torch.from_numpy(np.concatenate([images for images, _ in parts])).permute(0, 3, 1, 2)
    return try_mirrors(TaskImages(images, labels), CPU)


def folder_of(root: Path, images: Pixels, names: list[str]) -> Path:
    for name in set(names):
        save_photos(root / name, images[[own == name for own in names]])
    return root


def eye(**wishes: Any) -> ContinualClassifier:
    return ContinualClassifier("eye", device="cpu", **{"settings": SMALL, **wishes})


def test_every_photo_is_named_by_the_others() -> None:
    random = torch.Generator().manual_seed(1)
    features = torch.randn(12, 6, generator=random, dtype=torch.float64)
    labels = torch.arange(12) % 3
    x = (features - features.mean(dim=0)) / features.std(dim=0, unbiased=False)
    x = torch.cat([x, torch.full((12, 1), features.numel() ** 0.5, dtype=torch.float64)], dim=1)
    y = functional.one_hot(labels).double()
    said = leave_one_out(features, y)
    for left_out in range(12):
        others = torch.arange(12) != left_out
        matrix = x[others].T @ x[others] + 12 * ridge(6, 12) * torch.eye(7, dtype=torch.float64)
        weight = torch.linalg.solve(matrix, x[others].T @ y[others])
        assert torch.allclose(said[left_out], x[left_out] @ weight)


def test_photos_tell_whether_left_and_right_matter() -> None:
    assert tried(things(8)).helps
    assert tried(signs(20)).harms
    mixed = tried(things(8), signs(20, 20))
    assert mixed.harms
    assert not mixed.helps
    plain = tried((np.concatenate([blotches(number, False, noise=0.2) for number in (1, 2)]), ["a"] * 8 + ["b"] * 8))
    assert not plain.helps
    assert not plain.harms


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [({}, True), ({"settings": {**SMALL, "augment.flip": False}}, False), ({"recipe": "photos"}, True)],
)
def test_the_first_lesson_decides_unless_somebody_has(wishes: dict[str, Any], expected: bool) -> None:
    assert eye(**wishes).learn(*things(8)).method.setting.mirrors is expected


def test_it_is_decided_once(tmp_path: Path) -> None:
    model = eye().learn(*signs(20)).learn(*things(8))
    assert not model.method.setting.mirrors
    model = eye().learn(*things(8)).learn(*signs(20))
    model.save(tmp_path / "m")
    again = ContinualClassifier.load(tmp_path / "m", "cpu")
    assert model.method.setting.mirrors
    assert again.method.setting.mirrors
    assert eye().configure(settings={"augment.flip": False}).learn(*things(8)).config.augment.flip is False


def test_only_an_untrained_eye_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def helps(photos: TaskImages, _: torch.device) -> Trial:
        asked.append(len(photos.labels))
        return Trial(9, 9.0, 0.0)

    monkeypatch.setattr(learner, "try_mirrors", helps)
    for method, settings in (("frozen", TINY), ("finetune", TINY), ("gcab", {**TINY, "options.eye": 0})):
        model = ContinualClassifier(method, device="cpu", epochs=1, settings=settings)
        model.learn(*things(2))
        assert not model.method.setting.mirrors
    assert asked == []
    held_out = ContinualClassifier(device="cpu", epochs=1, settings=TINY_GCAB).learn(*things(2), held_out=0.25)
    assert held_out.method.setting.mirrors
    assert asked == [12], "photos that are held out have no part in it"


def test_a_later_recipe_does_not_change_what_the_eye_has_summed(tmp_path: Path) -> None:
    model = ContinualClassifier(device="cpu", epochs=1, settings={**TINY_GCAB, "augment.flip": False})
    images, names = things(4)
    model.learn(images[:16], names[:16])
    model.configure(recipe="photos", epochs=1).learn(images[16:], names[16:])
    model.save(tmp_path / "m")
    again = ContinualClassifier.load(tmp_path / "m", "cpu")
    assert again.config.augment.flip
    assert not again.method.setting.mirrors
    assert torch.equal(model.logits(images), again.logits(images))


def test_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = folder_of(tmp_path / "things", *things(8)), folder_of(tmp_path / "signs", *signs(20))
    wishes: dict[str, Any] = {"method": "eye", "device": "cpu", "held_out": 0.0, "size": 16}
    assert plan(tmp_path / "m", first, **wishes, settings=SMALL).mirrors
    notes = list[str | None]()
    for photos, settings in ((first, SMALL), (second, None)):
        teach(
            tmp_path / "m", photos, **wishes, settings=settings, progress=lambda event: notes.append(event.get("text"))
        )
    assert [note for note in notes if note in (CHOSEN, BLIND)] == [CHOSEN, BLIND]
    assert "an image and its mirror image count as the same" in succeeds(capsys, "info", tmp_path / "m")
