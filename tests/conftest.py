"""What holds for all tests: the summary counts those that no browser could run."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import MISSING
from hypothesis import HealthCheck, settings

pytest_plugins = ["helpers.page", "helpers.side_by_side"]
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@contextmanager
def unmeasured() -> Iterator[None]:
    """For code that is not gcab's, or that other tests run as well."""
    measuring = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(measuring)


def pytest_configure(config: pytest.Config) -> None:
    """What processes test side by side is forked from one process, which takes seconds to start."""
    if config.getoption("processes"):
        from helpers import prepared

        os.environ[prepared.SHARED] = str(prepared.started())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run without a browser must not look like one in which the page was tested."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(MISSING in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests skipped for want of a browser: make browser installs Chromium")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported here is garbage, and looking for some would take a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()  # so that collections look at what tests make, not at all of torch
        gc.enable()
        gc.set_threshold(20_000, 20, 50)  # an exported graph alone is millions of objects, none of them garbage


already_run: set[str] = set()  # test functions, whatever their parameters


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Coverage, half of a test's time again, is not for `repeats`, nor for later parameters but of what is `varied`."""
    function = item.nodeid.partition("[")[0]
    again = function in already_run and item.get_closest_marker("varied") is None
    repeats = again or item.get_closest_marker("repeats") is not None
    already_run.add(function)
    with unmeasured() if repeats else nullcontext():
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def small_change() -> Iterator[None]:
    """Tiny runs without what costs them as much as their training, and has no part in any result."""
    import torch

    from gcab.model import eye
    from gcab.runs import environment

    with pytest.MonkeyPatch.context() as patch:
        for accelerator in (torch.cuda, torch.xpu, torch.mtia):
            if not accelerator.is_available():  # torch would format the stack at every seed, for when it is
                patch.setattr(accelerator, "manual_seed_all", lambda _: None)
        patch.setattr(os, "fsync", os.fstat)  # no test cuts the power; a descriptor must still be one
        patch.setattr(environment, "_commit", cache(environment._commit))  # which asks git
        patch.setattr(eye, "CHUNK", 100)  # the few features of a tiny model fit a cache
        yield


@pytest.fixture(scope="module")
def forked_interpreters() -> Iterator[None]:
    """Whatever starts Python gets a fork of one that has loaded torch, which takes seconds otherwise."""
    import multiprocessing.spawn

    from helpers.prepared import started

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(started() / "python"))
        patch.setattr(multiprocessing.spawn, "_python_exe", os.fsencode(sys.executable))
        yield


@pytest.fixture(scope="module")
def rough_embedding() -> Iterator[None]:
    """The fewest steps that a t-SNE takes, and no room made for labels, for pictures that nobody looks at."""
    import matplotlib
    from matplotlib.figure import Figure
    from sklearn import manifold

    intact = Figure.savefig

    @unmeasured()
    def savefig(figure: Figure, *arguments: Any, **named: Any) -> None:
        with pytest.MonkeyPatch.context() as plain:
            plain.setattr(figure, "get_layout_engine", lambda: None)  # with any, all is drawn twice
            with matplotlib.rc_context({"svg.fonttype": "none"}):  # text as text, not as curves
                intact(figure, *arguments, dpi=50, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifold, "TSNE", partial(manifold.TSNE, max_iter=250, min_grad_norm=1e9))
        patch.setattr(Figure, "savefig", savefig)
        yield


@pytest.fixture(scope="module")
def unmeasured_translation() -> Iterator[None]:
    """Torch follows a program in millions of calls, each of which would cost as much again to look at."""
    import torch.export
    import torch.onnx

    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (torch.export, "export"),
            (torch.export, "save"),
            (torch.export, "load"),
            (torch.onnx, "export"),
        ):
            patch.setattr(module, name, unmeasured()(getattr(module, name)))
        yield


@pytest.fixture(scope="module")
def plain_translation(unmeasured_translation: None) -> Iterator[None]:
    """ONNX files as they are translated: making graphs smaller takes as long as all else, and tests/export does it."""
    import torch.onnx

    del unmeasured_translation
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", partial(torch.onnx.export, optimize=False))
        yield


@pytest.fixture
def one_patch_size() -> Iterator[None]:
    """The operations of an eye's graph without their repetition for patches of other sizes."""
    from gcab.model.eye import SHARES, filters

    usual = dict(SHARES)
    assert filters().keys() == usual.keys()  # which are read once, for all tests
    SHARES.clear()
    SHARES[4] = sum(usual.values())
    yield
    SHARES.clear()
    SHARES.update(usual)  # in their order, which is that of the features


@pytest.fixture(scope="module")
def small_eyes() -> Iterator[None]:
    """Of all runs of the paper's recipes, so that recipes share them as they always do."""
    from helpers.recipes import few_features  # with torch and all methods, which not every test needs

    with few_features():
        yield


@pytest.fixture
def example_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The documented method, in a file of its own that the registry finds as if it lay in the package's folder."""
    from helpers.documents import ADD_A_METHOD, code_blocks

    import gcab.methods

    [example] = code_blocks(ADD_A_METHOD, "python")
    assert len(example.splitlines()) < 62
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "old_answers.py").write_text(example, encoding="utf-8")
    monkeypatch.setattr(gcab.methods, "__path__", [*gcab.methods.__path__, str(folder)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield "old-answers"
    sys.modules.pop("gcab.methods.old_answers", None)
    vars(gcab.methods).pop("old_answers", None)


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretrained encoder as the transformers library saves it; here and below: of random weights, and tiny."""
    from helpers.encoders import save, transformer

    return save(transformer("vit"), tmp_path_factory.mktemp("encoders") / "tiny-vit")


@pytest.fixture(scope="session")
def dino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one."""
    from helpers.encoders import save, transformer

    return save(transformer("dinov2"), tmp_path_factory.mktemp("encoders") / "tiny-dino")


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that is an ONNX file."""
    from helpers.encoders import onnx_encoder

    return onnx_encoder(tmp_path_factory.mktemp("encoders") / "filters.onnx")


@pytest.fixture(params=["folder", "file"])
def encoder(request: pytest.FixtureRequest, dino: Path, graph: Path) -> Path:
    """A folder, and a file."""
    return dino if request.param == "folder" else graph
