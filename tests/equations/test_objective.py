"""L_BCE, the total loss by its named terms, and prediction, each recomputed from images to numbers."""

from dataclasses import replace

import pytest
import torch
from helpers import naive
from helpers.naive import Matrix, Vector
from helpers.networks import grown, scramble, soften
from helpers.tasks import ENCODER, IMAGE_SIZE, gcab_options, tasks_of
from torch import Tensor

from gcab.data.tasks import Batch, Progress, TaskImages
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.method import binary_cross_entropy
from gcab.model.frozen import Frozen

SIZES = (2, 3, 2)
PROGRESS = Progress(torch.tensor(2), 5)


@pytest.mark.parametrize(("profile", "lambda_pfr"), [("extended", 0.5), ("official", 0.001), ("paper", 0.001)])
def test_the_terms_have_the_papers_weights_and_gates_its_sharpness(profile: str, lambda_pfr: float) -> None:
    """As section "Experimental Setup" gives them; of the drift term's weight, `extended` has another distance's."""
    options = gcab_options(profile)
    assert (options.lambda_gcab, options.lambda_pfr, options.network.sharpest) == (0.05, lambda_pfr, 800)


def images_and_labels() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(21)
    images = torch.randn(2, 3, IMAGE_SIZE, IMAGE_SIZE, generator=generator, dtype=torch.float64)
    return images, torch.tensor([5, 6])  # classes of the third task


def head_logits(method: Gcab, task: int, features: Matrix, m_i: Vector, m_2: Vector) -> Vector:
    """c^s(f_s(b)) by loops, in the manner of the method's profile."""
    network = method.network
    token = naive.numbers(network.tokens[0 if network.options.class_token == "shared" else task])
    head = network.heads[task]
    if network.options.residual == "attention":
        f = naive.decode_as_in_text(network.block, token, features, m_i, m_2, activation=True)
        return naive.linear(naive.masked([f], m_i), head.get_submodule("linear"))[0]
    f = naive.decode_as_published(network.block, token, features, m_i, m_2)
    return naive.linear([naive.layer_norm(f, head.get_submodule("norm"))], head.get_submodule("linear"))[0]


def naive_gates(method: Gcab, task: int, s: float) -> tuple[Vector, Vector]:
    network = method.network
    return naive.gate(network.gate_in.embedding(task), s), naive.gate(network.gate_hidden.embedding(task), s)


def naive_spaces(method: Gcab, features: Matrix) -> list[Matrix]:
    """Eq. projection for each s, from scratch."""
    spaces = []
    for s in range(len(SIZES)):
        x = features
        for t in range(len(SIZES) - 1, s, -1):
            x = naive.project(method.network.cascade.projectors[t - 1], x)
        spaces.append(x)
    return spaces


def test_binary_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(22)
    logits = torch.randn(4, 5, generator=generator, dtype=torch.float64) * 3
    labels = [0, 4, 2, 2]
    expected = naive.binary_cross_entropy(naive.table(logits), labels)
    assert float(binary_cross_entropy(logits, torch.tensor(labels))) == pytest.approx(expected)
    shifted = torch.tensor(labels) + 7
    assert float(binary_cross_entropy(logits, shifted, first=7)) == pytest.approx(expected)


@pytest.mark.parametrize("profile", ["paper", "official"])
@pytest.mark.parametrize("compensation", [True, False])
def test_prediction_is_encode_cascade_decode_classify(profile: str, compensation: bool) -> None:
    method = grown(replace(soften(gcab_options(profile)), compensation=compensation), *SIZES)
    images, _ = images_and_labels()
    logits = method.predict(images)
    assert logits.shape == (2, sum(SIZES))
    for image in range(2):
        features = naive.encode(method.network.encoder, images[image])
        spaces = naive_spaces(method, features) if compensation else [features] * len(SIZES)
        expected: Vector = []
        for task in range(len(SIZES)):
            expected += head_logits(method, task, spaces[task], *naive_gates(method, task, 1.5))
        assert naive.numbers(logits[image]) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("profile", ["paper", "official"])
def test_features_and_embeddings_are_stages_of_the_prediction(profile: str) -> None:
    method = grown(soften(gcab_options(profile)), *SIZES)
    images, _ = images_and_labels()
    network = method.network
    parts = []
    for task in range(len(SIZES)):
        compensated = method.compensate(method.features(images), task)
        assert compensated is not None
        feature = method.embed(images, task, compensate=True)
        assert torch.equal(feature, network.decode(task, compensated, network.masks(task)))
        parts.append(network.classify(task, feature, network.masks(task)))
    assert torch.equal(torch.cat(parts, dim=1), method.predict(images))


def teach(method: Gcab) -> None:
    """Begin the newest task and let the encoder drift away from its teacher."""
    method.begin_task(tasks_of(*SIZES)[-1])
    scramble(method.network.encoder, seed=23)


@pytest.mark.parametrize("profile", ["paper", "official", "extended"])
@pytest.mark.parametrize("old_passes", ["projected", "unprojected"])
@pytest.mark.parametrize("bce_heads", ["all", "new"])
def test_the_loss_is_the_sum_of_the_papers_terms(profile: str, old_passes: str, bce_heads: str) -> None:
    options = replace(soften(gcab_options(profile)), lambda_gcab=0.3, lambda_pfr=0.7)
    options = replace(options, old_passes=old_passes, bce_heads=bce_heads)  # type: ignore[arg-type]
    method = grown(options, *SIZES)
    teach(method)
    images, labels = images_and_labels()
    terms = method.loss(method.batch(Batch(images, labels)), PROGRESS)
    assert terms.keys() == {"classification", "sparsity", "drift"}

    sharpest = 1.5
    fraction = 2 / 4 if profile == "paper" else 2 / 5
    s = 1 / sharpest + (sharpest - 1 / sharpest) * fraction
    newest = naive_gates(method, 2, s)
    network, teacher = method.network, method.teacher
    assert teacher is not None
    assert isinstance(teacher.module, type(network.encoder))
    logits, projected, taught = [], [], []
    for image in images:
        features = naive.encode(network.encoder, image)
        spaces = naive_spaces(method, features)
        row: Vector = []
        if bce_heads == "all":
            for task in range(2):
                space = spaces[task] if old_passes == "projected" else features
                row += head_logits(method, task, space, *naive_gates(method, task, sharpest))
        logits.append(row + head_logits(method, 2, features, *newest))
        projected += spaces[1]
        taught += naive.encode(teacher.module, image)
    first = 5 if bce_heads == "new" else 0
    classification = naive.binary_cross_entropy(logits, [label - first for label in labels.tolist()])
    assert terms["classification"].item() == pytest.approx(classification, rel=1e-6)

    used = naive.numbers(network.gate_in.used) + naive.numbers(network.gate_hidden.used)
    assert terms["sparsity"].item() == pytest.approx(0.3 * naive.sparsity(newest[0] + newest[1], used), rel=1e-6)

    if profile == "paper":
        distances = [naive.cosine_distance(a, b) for a, b in zip(projected, taught, strict=True)]
        drift = sum(distances) / len(distances)
    else:
        pairs = zip(projected, taught, strict=True)
        squares = [(x - y) ** 2 for a, b in pairs for x, y in zip(a, b, strict=True)]
        drift = (sum(squares) / (len(squares) if profile == "extended" else 1)) ** 0.5
    assert drift > 0.01
    assert terms["drift"].item() == pytest.approx(0.7 * drift, rel=1e-4)


def test_distillation_compares_the_features_themselves() -> None:
    options = replace(gcab_options("paper"), drift="distillation", lambda_pfr=2.0)
    method = grown(options, *SIZES)
    assert len(method.network.cascade.projectors) == 0
    assert method.compensate(torch.zeros(1, 4, 16), 0) is None
    teach(method)
    images, labels = images_and_labels()
    drift = method.loss(method.batch(Batch(images, labels)), PROGRESS)["drift"].item()
    assert method.teacher is not None
    pairs = zip(method.features(images).flatten(0, 1), method.teacher(images).flatten(0, 1), strict=True)
    distances = [naive.cosine_distance(naive.numbers(a), naive.numbers(b)) for a, b in pairs]
    assert drift == pytest.approx(2 * sum(distances) / len(distances), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"classification", "sparsity", "drift"}),
        ({"drift": "none"}, {"classification", "sparsity"}),
        ({"drift": "frozen"}, {"classification", "sparsity"}),
        ({"drift": "distillation"}, {"classification", "sparsity", "drift"}),
    ],
)
def test_the_terms_are_named_by_what_is_switched_on(changes: dict[str, str], expected: set[str]) -> None:
    method = grown(replace(gcab_options("official"), **changes), *SIZES)  # type: ignore[arg-type]
    teach(method)
    images, labels = images_and_labels()
    assert method.loss(method.batch(Batch(images, labels)), PROGRESS).keys() == expected


def test_the_first_task_has_no_drift_and_ungated_networks_no_sparsity() -> None:
    images, _ = images_and_labels()
    first = grown(gcab_options("official"), 2)
    first.begin_task(tasks_of(2)[0])
    batch = first.batch(Batch(images, torch.tensor([0, 1])))
    assert first.loss(batch, PROGRESS).keys() == {"classification", "sparsity"}
    options = gcab_options("official")
    ungated = grown(replace(options, network=replace(options.network, gates=False)), 2)
    ungated.begin_task(tasks_of(2)[0])
    assert ungated.loss(batch, PROGRESS).keys() == {"classification"}
    assert ungated.capacity() == {}


@pytest.mark.parametrize("profile", ["paper", "official"])
def test_each_term_teaches_what_it_should(profile: str) -> None:
    """Drift reaches the encoder and the newest projector, sparsity the newest gates; nothing reaches the teacher."""
    method = grown(soften(gcab_options(profile)), *SIZES)
    teach(method)
    images, labels = images_and_labels()
    reached: dict[str, set[str]] = {}
    for term in ("classification", "sparsity", "drift"):
        method.zero_grad()
        method.loss(method.batch(Batch(images, labels)), PROGRESS)[term].backward()
        learning = {n for n, p in method.named_parameters() if p.grad is not None and bool(p.grad.abs().sum() > 0)}
        reached[term] = {".".join(name.split(".")[1:3]) for name in learning}
        assert not any(name.startswith("teacher") for name in learning)
        assert not any(name.startswith(("network.heads.0", "network.cascade.projectors.0")) for name in learning)
    assert reached["sparsity"] == {"gate_in.embeddings", "gate_hidden.embeddings"}
    assert "cascade.projectors" in reached["drift"]
    assert reached["drift"] - {"cascade.projectors"} == {"encoder.patches", "encoder.position", "encoder.blocks"}
    newest = {"heads.2", f"tokens.{len(method.network.tokens) - 1}", "block.query", "block.contract", "encoder.blocks"}
    assert newest | {"gate_in.embeddings", "gate_hidden.embeddings"} <= reached["classification"]


def test_the_teacher_is_the_encoder_as_the_task_began_and_leaves_with_it() -> None:
    method = grown(GcabOptions(), *SIZES, encoder=replace(ENCODER, drop_path=0.5))
    images, _ = images_and_labels()
    method.eval()
    before = method.features(images)
    method.begin_task(tasks_of(*SIZES)[-1])
    scramble(method.network, seed=24)
    method.train()
    assert isinstance(method.teacher, Frozen)
    assert torch.equal(method.teacher(images), before)
    assert any(key.startswith("teacher.") for key in method.state_dict())
    method.end_task(tasks_of(*SIZES)[-1], TaskImages(torch.zeros(0, 3, 8, 8, dtype=torch.uint8), torch.zeros(0).long()))
    assert method.teacher is None
    assert not any(key.startswith("teacher.") for key in method.state_dict())
