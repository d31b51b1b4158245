"""A classifier in scikit-learn's hands: pipelines, clones, searches, copies, and its own errors."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.eyes import eye, many, network, same
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler
from sklearn.utils.validation import check_is_fitted

from gcab import ContinualClassifier, GcabError


def test_fit_forgets_and_partial_fit_learns_on() -> None:
    model = eye().learn(*many(2, 3))
    assert model.fit(*many(0, 1)) is model
    assert model.classes_.tolist() == ["a", "b"]
    assert same(model, eye().learn(*many(0, 1)))
    assert model.partial_fit(*many(3, 2), classes=["a", "b", "c", "d"]).classes_.tolist() == ["a", "b", "c", "d"]
    assert same(model, eye().learn(*many(0, 1)).learn(*many(3, 2)))


def test_the_score_is_the_share_named_right() -> None:
    model = eye().fit(*many(0, 1))
    images, labels = many(0, 1, seed=5)
    right = model.predict(images) == np.array(labels)
    assert model.score(images, labels) == right.mean()
    assert model.score(images, ["x"] * len(labels)) == 0
    weights = np.arange(len(labels))
    assert model.score(images, labels, weights) == pytest.approx((right * weights).sum() / weights.sum())
    with pytest.raises(ValueError, match="12 images but labels of the shape"):
        model.score(images, labels[:3])


def test_a_clone_has_the_settings_and_has_learned_nothing() -> None:
    model = network().fit(*many(0, 1))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.classes == []
    assert same(copy.fit(*many(0, 1)), model)
    assert is_classifier(model)


def test_a_model_says_what_it_was_made_with() -> None:
    assert repr(ContinualClassifier()) == "ContinualClassifier()"
    assert repr(ContinualClassifier("eye", image_size=16)) == "ContinualClassifier(method='eye', image_size=16)"


def test_a_loaded_model_knows_how_it_learned(tmp_path: Path) -> None:
    model = network().fit(*many(0, 1))
    model.save(tmp_path / "model")
    loaded = ContinualClassifier.load(tmp_path / "model", "cpu")
    assert same(clone(loaded).fit(*many(0, 1)), model)
    assert loaded.config == model.config


def test_parameters_are_set_at_once_or_for_the_next_fit() -> None:
    model = network().set_params(epochs=1, seed=3)
    assert (model.config.training.epochs, model.config.seed) == (1, 3)
    model.fit(*many(0, 1)).set_params(epochs=2)
    assert (model.config.training.epochs, model.get_params()["epochs"]) == (1, 2)
    assert model.fit(*many(2, 3)).taught[0].epochs == 2
    for wrong, sentence in (({"depth": 3}, "no parameter 'depth'"), ({"method": "gcap"}, "did you mean 'gcab'")):
        with pytest.raises(ValueError, match=sentence):
            model.set_params(**wrong)
    assert model.get_params()["method"] is None, "gcab, as the encoder is not pretrained"


def test_a_pipeline_and_a_search_over_digits() -> None:
    rows, digits = load_digits(n_class=4, return_X_y=True)
    rows, digits = rows[:160], digits[:160]
    pictures = FunctionTransformer(lambda table: np.clip(table, 0, 1).reshape(-1, 8, 8))
    pipe = make_pipeline(MinMaxScaler(), pictures, eye())
    assert cross_val_score(pipe, rows, digits, cv=2).mean() > 0.6
    pipe.fit(rows[:80], digits[:80])
    check_is_fitted(pipe)
    assert pipe.classes_.tolist() == [0, 1, 2, 3]
    search = GridSearchCV(pipe, {"continualclassifier__seed": [1, 2]}, cv=2).fit(rows, digits)
    assert search.best_estimator_[-1].get_params()["seed"] in (1, 2)


def test_copies_answer_the_same() -> None:
    for model in (eye().fit(*many(0, 1)), network().fit(*many(0, 1))):
        model.predict(many(0)[0])
        assert same(pickle.loads(pickle.dumps(model)), model)


def test_what_is_wrong_is_a_value_error_and_changes_nothing() -> None:
    model = eye().fit(*many(0, 1))
    wrong: list[Callable[[], object]] = [
        lambda: model.fit(many(2)[0], ["c"]),
        lambda: model.partial_fit(*many(2), classes=["a"]),
    ]
    for act in wrong:
        with pytest.raises(ValueError, match="label") as problem:
            act()
        assert isinstance(problem.value, GcabError)
    assert model.classes == ["a", "b"]
    with pytest.raises(AttributeError, match="learned nothing yet"):
        _ = eye().classes_
