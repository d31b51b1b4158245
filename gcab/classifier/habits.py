"""The interface of scikit-learn's classifiers, for its pipelines, searches and `clone`, without importing it.

model = ContinualClassifier("eye")
model.fit(X, y)            # forgets all it knew, then learns
model.partial_fit(X2, y2)  # learns on
model.score(X, y)
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from inspect import signature
from reprlib import Repr
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gcab.data.arrays import Images
from gcab.errors import GcabError

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from gcab.classifier.model import Label


class InputError(GcabError, ValueError):
    """A GcabError that is a ValueError, too, which scikit-learn expects of bad input."""


class ScikitHabits(ABC):
    """Mixin with the methods of a scikit-learn classifier, built on `learn` and `predict`."""

    _given: Mapping[str, Any]  # the constructor's arguments

    @property
    @abstractmethod
    def classes(self) -> "list[Label]":
        """Every class learned."""

    @abstractmethod
    def learn(self, images: Images, labels: Any = None, *, held_out: float = 0.0) -> Self:
        """Learn more."""

    @abstractmethod
    def predict(self, images: Images) -> np.ndarray[Any, Any]:
        """The most probable class of each image."""

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """The classes in the order of `predict_proba`'s columns, which is that in which they were learned."""
        if not self.classes:
            raise AttributeError("this model has learned nothing yet, so there is no classes_: call fit first.")
        return np.array(self.classes)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - no argument is an estimator
        """The constructor's arguments; for a loaded model, such as would make it learn the same way."""
        return dict(self._given)

    def __repr__(self) -> str:
        """As it could be made again, without what is as it always is."""
        short = Repr()  # of a loaded model the settings are many
        short.maxstring = short.maxother = 120
        usual = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
        own = (f"{name}={short.repr(value)}" for name, value in self._given.items() if value != usual.get(name))
        return f"{type(self).__name__}({', '.join(own)})"

    def set_params(self, **params: Any) -> Self:
        """Change arguments: at once if nothing is learned yet, else from the next `fit` on (`configure` is sooner)."""
        strange = [name for name in params if name not in self._given]
        if strange:
            raise InputError(f"there is no parameter '{strange[0]}': {', '.join(self._given)} can be set.")
        changed = {**self._given, **params}
        try:
            fresh = type(self)(**changed)
        except GcabError as problem:
            raise InputError(str(problem)) from problem
        if self.classes:
            self._given = changed
        else:
            vars(self).update(vars(fresh))
        return self

    def fit(self, X: Images, y: Any, *, held_out: float = 0.0) -> Self:  # noqa: N803
        """Forget everything and learn these images; if anything goes wrong, the model stays as it was."""
        fresh = type(self)(**self._given).partial_fit(X, y, held_out=held_out)
        vars(self).update({name: value for name, value in vars(fresh).items() if vars(self).get(name) != value})
        return self

    def partial_fit(
        self,
        X: Images,  # noqa: N803
        y: Any,
        classes: Sequence["Label"] | None = None,
        *,
        held_out: float = 0.0,
    ) -> Self:
        """Learn more, as `learn` does; `classes` need not be known in advance, and no other may come if given."""
        try:
            if hasattr(X, "tocsr"):
                raise GcabError("a sparse table holds no images: give a dense array.")
            if classes is not None and (strange := set(np.unique(y).tolist()) - set(np.array(classes).tolist())):
                raise GcabError(f"label {strange.pop()!r} is not among the classes given: add it, or give none.")
            return self.learn(X, y, held_out=held_out)
        except GcabError as problem:
            raise InputError(str(problem)) from problem

    def score(self, X: Images, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The share of images whose class is named right, from 0 to 1."""
        given, predicted = np.asarray(y), self.predict(X)
        if given.shape != predicted.shape:
            raise InputError(f"{len(predicted)} images but labels of the shape {given.shape}: give one for each.")
        return float(np.average(given == predicted, weights=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.classes)

    def __sklearn_tags__(self) -> "Tags":
        """Called by scikit-learn only, which therefore can be imported."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        images = InputTags(two_d_array=False, three_d_array=True)
        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=images,
            no_validation=True,
        )
