"""Each constructor parameter is declared once; constructors, checks, model files and the command line follow."""

from __future__ import annotations

import inspect
import pickle
import typing

import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutSVC,
    DropoutSVCCV,
    MCFClassifier,
    NoisyLinearClassifier,
    NoisyLinearClassifierCV,
    load,
    save,
)
from dropmargin.estimators.parameters import number, parameter, specification
from dropmargin.io.model import descriptions
from dropmargin.losses import Hinge
from helpers import make_data

PLAIN = [DropoutSVC, DropoutLogisticRegression, NoisyLinearClassifier, MCFClassifier]
SEARCHES = {
    DropoutSVCCV: DropoutSVC,
    DropoutLogisticRegressionCV: DropoutLogisticRegression,
    NoisyLinearClassifierCV: NoisyLinearClassifier,
}


@pytest.mark.parametrize("cls", [*PLAIN, *SEARCHES])
def test_the_constructor_has_the_declared_parameters(cls):
    found = inspect.signature(cls.__init__).parameters
    declared = specification(cls)
    assert {name: one.default for name, one in found.items() if name != "self"} == {
        name: one.default for name, one in declared.items()
    }
    assert set(cls._get_param_names()) == set(declared)
    by_position = [name for name, one in found.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert by_position == (["self", "loss"] if "loss" in declared else ["self"])
    assert typing.get_type_hints(cls.__init__)["tol"] is float
    with pytest.raises(TypeError, match="alpha"):
        cls(alpha=1.0)


@pytest.mark.parametrize(("search", "plain"), SEARCHES.items(), ids=lambda cls: cls.__name__)
def test_a_search_has_all_parameters_of_the_plain_class_that_it_does_not_choose(search, plain):
    chosen_or_without_use = {"noise", "C", "warm_start"}
    shared = specification(plain).keys() - chosen_or_without_use
    assert shared < specification(search).keys()
    assert all(
        specification(search)[name].default == specification(plain)[name].default for name in shared - {"verbose"}
    )


def test_dask_does_not_take_a_fitted_model_apart():
    """Dask rebuilds a dataclass from its fields, without its fitted attributes, and hashes nothing else of it."""
    dask = pytest.importorskip("dask")
    from dask.tokenize import tokenize

    X, labels, _ = make_data(n_columns=2)
    models = [DropoutSVC(C=1.0).fit(X, y) for y in labels.T]
    found, total = dask.compute([models[0], dask.delayed(3)], scheduler="synchronous")[0]
    assert_array_equal(found.coef_, models[0].coef_)
    assert total == 3
    assert tokenize(models[0]) != tokenize(models[1])


# A new parameter ------------------------------------------------------------------------------------------------------


class MarginSVC(DropoutSVC):
    """A support vector machine with another margin.

    Parameters
    ----------
    margin : float, default=1.0
        The margin of the hinge loss, above 0. All other parameters are those of `DropoutSVC`.
    """

    margin: float = parameter(default=1.0, check=number(0.0, low_open=True))

    def _make_loss(self):
        return Hinge(self.margin)


def _describe(monkeypatch, cls, name=None):
    """Let model files hold a class, with the description of `DropoutSVC`."""
    known = descriptions.MODELS["DropoutSVC"]
    described = descriptions.Description("", known.fitted, known.check)
    monkeypatch.setattr(descriptions.Description, "find", _found(descriptions.Description.find, described, cls))
    for listed in (descriptions.MODELS, descriptions.CLASSES):
        monkeypatch.setitem(listed, name or cls.__name__, described)


def _found(find, described, cls):
    return lambda self, name: cls if self is described else find(self, name)


def test_a_new_parameter_is_a_declaration_and_its_use(tmp_path, monkeypatch):
    X, labels, _ = make_data()
    y = labels[:, 0]
    model = MarginSVC(margin=2.0, C=3.0)
    assert repr(model) == "MarginSVC(C=3.0, margin=2.0)"
    assert clone(model).get_params() == model.get_params() == DropoutSVC(C=3.0).get_params() | {"margin": 2.0}
    model.set_params(tol=1e-10).fit(X, y)
    assert model.objective_ != pytest.approx(DropoutSVC(C=3.0, tol=1e-10).fit(X, y).objective_, rel=1e-3)
    assert_array_equal(pickle.loads(pickle.dumps(model)).coef_, model.coef_)
    with pytest.raises(ValueError, match=r"margin must be a number in \(0, inf\), got -1"):
        MarginSVC(margin=-1).fit(X, y)
    # Model files need no more than the declaration, either.
    _describe(monkeypatch, MarginSVC)
    save(model, tmp_path / "model.json")
    assert load(tmp_path / "model.json").get_params() == model.get_params()


def test_a_parameter_that_earlier_files_lack_takes_its_default(tmp_path, monkeypatch):
    class Earlier(DropoutSVC):
        pass

    class Later(DropoutSVC):
        margin: float = parameter(default=1.0)

    X, labels, _ = make_data()
    _describe(monkeypatch, Earlier)
    save(Earlier(C=2.0).fit(X, labels[:, 0]), tmp_path / "model.json")
    Later.__name__ = "Earlier"
    _describe(monkeypatch, Later)
    assert load(tmp_path / "model.json").get_params() == Later(C=2.0).get_params()


def test_a_subclass_may_have_a_constructor_of_its_own():
    class Fixed(DropoutSVC):
        def __init__(self, *, C=2.0):
            super().__init__(C=C, noise=None)

    class Derived(Fixed):
        pass

    assert Derived(C=5.0).get_params() == {"C": 5.0}
    assert Derived().noise is None
