"""A model of photos that are not square, from the first lesson to every way out of the program."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.photos import WEEK1, WEEK2, make_photos, pictures
from helpers.settings import TINY_GCAB, set_flags

from gcab.classifier.audit import looks_like_images
from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.overview import overview
from gcab.cli.main import main
from gcab.config import override
from gcab.data.decode import read_image
from gcab.data.decoders import answer_to
from gcab.data.folder import load
from gcab.export.exported import Exported
from gcab.export.writing import describe
from gcab.model.encoder import Encoder
from gcab.runs.assemble import build_method
from gcab.serve import schema
from gcab.serve.decoding import Decoders
from gcab.serve.limits import Limits
from gcab.serve.photos import decode_photo
from gcab.serve.served import Inference, ServedModel

pytestmark = pytest.mark.repeats

SIZE = (16, 32)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of other shapes than what a model looks at, and the model of two lessons."""
    place = tmp_path_factory.mktemp("wide")
    make_photos(place / "0", WEEK1, 12, 30, 70)
    make_photos(place / "1", WEEK2, 12, 40, 40)
    flags = ["--epochs", "1", "--device", "cpu", "--progress", "none", *set_flags(TINY_GCAB)]
    for number, size in enumerate((["--size", "16x32"], [])):
        assert main(["learn", str(place / "m.gcab"), str(place / str(number)), *flags, *size]) == 0
    return place


@pytest.fixture
def model(world: Path) -> ContinualClassifier:
    return ContinualClassifier.load(world / "m.gcab", "cpu")


def test_photos_of_any_shape_are_named(world: Path, model: ContinualClassifier) -> None:
    assert model.image_size == overview(world / "m.gcab")["image_size"] == SIZE
    for height, width in ((16, 32), (30, 60), (31, 61)):
        photos = np.concatenate([pictures(name, 4, height, width, seed=9) for name in WEEK1])
        assert list(model.predict(photos)) == [name for name in WEEK1 for _ in range(4)]


def test_a_later_lesson_keeps_the_size(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", str(world / "m.gcab"), str(world / "0"), "--size", "16"]) == 2
    assert "the images of this model have 16 x 32 pixels since its first task" in capsys.readouterr().err


def test_an_exported_model_sees_the_same_part_of_a_photo(model: ContinualClassifier) -> None:
    exported = Exported(model, with_preprocessing=True)
    photos = np.concatenate([pictures(name, 1, 30, 70, seed=9) for name in (*WEEK1, *WEEK2)])
    _, probabilities, _ = exported(torch.from_numpy(photos))
    np.testing.assert_allclose(probabilities, model.predict_proba(photos), atol=0.01)  # a level of 255 may differ
    about = describe(model, with_preprocessing=False)
    assert (about["image_size"], about["input"][:23]) == ("16x32", "float32 (n, 3, 16, 32):")


def test_a_server_decodes_and_draws_the_same_part(world: Path, model: ContinualClassifier) -> None:
    served, decoders = ServedModel.load(world / "m.gcab", Inference("cpu")), Decoders(1, Limits())
    file = world / "0" / WEEK1[0] / "000.png"
    with file.open("rb") as stream:
        pixels = decode_photo(decoders, stream, file.name, served.image_size)
    decoders.close()
    assert torch.equal(pixels, read_image(file, SIZE))
    [scores] = served.scores(pixels[None], [True])
    attention = schema.Attention.model_validate(served.answer(file.name, scores, 1)["attention"])
    rows, columns = model.config.encoder.grid(SIZE)
    assert (attention.side, len(attention.maps[0])) == (columns, rows * columns)
    assert rows != columns


def test_a_stored_photo_of_this_shape_would_be_found(model: ContinualClassifier) -> None:
    assert looks_like_images(torch.zeros(2, 3, *SIZE, dtype=torch.uint8), model.method)
    assert not looks_like_images(torch.zeros(2, 3, 32, 16, dtype=torch.uint8), model.method)


@pytest.mark.parametrize("size", [SIZE, (32, 16), 16])
def test_its_encoder_starts_a_model_of_another_shape(world: Path, model: ContinualClassifier, size: object) -> None:
    changes = {"encoder.weights": str(world / "m.gcab"), "scenario.image_size": size}
    encoder = build_method(override(model.config, changes)).get_submodule("network.encoder")
    known = model.method.get_submodule("network.encoder")
    assert isinstance(encoder, Encoder)
    assert isinstance(known, Encoder)
    kept = torch.equal(encoder.position, known.position) if encoder.tokens == known.tokens else False
    assert kept == (size == SIZE), "as many tokens in another shape are other places"


def test_files_are_decoded_in_processes_as_in_threads(world: Path, tmp_path: Path) -> None:
    images = load(world / "0", "train", SIZE).images
    assert images.shape[1:] == (3, *SIZE)
    file = next((world / "0" / WEEK1[0]).iterdir())
    request = {"target": str(tmp_path / "block"), "offset": 0, "size": SIZE, "files": [[str(file)]]}
    assert "checksum" in answer_to(request)
    assert (tmp_path / "block").read_bytes() == read_image(file, SIZE).numpy().tobytes()
