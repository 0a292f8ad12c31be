"""The constructor parameters of the estimators, each declared once.

A class that derives from `Parameters` declares a parameter as an annotated attribute::

    class MySVC(DropoutSVC):
        temperature: float = parameter(default=1.0, check=number(0.0))

The declaration holds the default and the check that `fit` runs; model files store every parameter by its name. The
constructor follows from the declarations of a class and of its bases: an ordinary ``__init__`` that stores its
arguments, with an explicit signature, as scikit-learn's `get_params` and `clone` need it. The classes are not
dataclasses, because Dask takes a dataclass apart into its fields and would lose the fitted attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from typing import Any, ClassVar, dataclass_transform

import numpy as np

from dropmargin.estimators import validation
from dropmargin.estimators.missing import CHOICES as MISSING_CHOICES

#: Takes the name and the value of a parameter; returns the value as it is used, or raises a `ValueError`.
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Parameter:
    """The declaration of a constructor parameter, see `parameter`."""

    default: Any
    check: Check | None
    kw_only: bool


def parameter(
    *, default: Any, check: Check | None = None, choices: tuple[str, ...] | None = None, kw_only: bool = True
) -> Any:
    """Declare a constructor parameter; its type is that of the annotated attribute.

    Parameters
    ----------
    default : object
        The default value. It must be immutable, as all estimators share it.
    check : callable, default=None
        ``check(name, value)`` returns the value as it is used, or raises a `ValueError`. ``None`` means that the value
        is checked where it is used, because the check depends on the data or on other parameters.
    choices : tuple of str, default=None
        The allowed values, in place of ``check``.
    kw_only : bool, default=True
        Whether the constructor takes it by name only.

    Returns
    -------
    Parameter
        The declaration. Instances have the value of the parameter in its place.
    """
    if choices is not None:
        check = partial(_choice, choices)
    return Parameter(default, check, kw_only)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
class Parameters:
    """Base of the classes whose constructor follows from their declared parameters.

    A subclass with an ``__init__`` of its own keeps it.
    """

    _declared: ClassVar[dict[str, Parameter]] = {}
    _own_declared: ClassVar[dict[str, Parameter]] = {}
    _has_generated_init: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Parameter)}
        for name in own:
            delattr(cls, name)
        cls._own_declared = own
        cls._declared = {}
        types: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            for name, declared in vars(base).get("_own_declared", {}).items():
                cls._declared[name] = declared
                types[name] = base.__annotations__[name]
        if "__init__" in vars(cls):
            cls._has_generated_init = False
        elif own or cls._has_generated_init:
            cls._has_generated_init = True
            cls.__init__ = _make_init(cls, types)  # type: ignore[method-assign]


def _make_init(cls: type[Parameters], types: dict[str, Any]) -> Any:
    """Return the ``__init__`` that `dataclasses` generates for the declared parameters."""
    fields = [
        (name, types[name], field(default=declared.default, kw_only=declared.kw_only))
        for name, declared in cls._declared.items()
    ]
    made = make_dataclass(cls.__name__, fields, namespace={"__module__": __name__}, eq=False, repr=False)
    init = vars(made)["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


def specification(cls: type) -> dict[str, Parameter]:
    """Return the declared constructor parameters of a class by name, empty if it declares none."""
    return getattr(cls, "_declared", {})


def check_parameter(estimator: Parameters, name: str) -> Any:
    """Return the value of one parameter as it is used, after its check."""
    check = estimator._declared[name].check
    value = getattr(estimator, name)
    return value if check is None else check(name, value)


def check_parameters(estimator: Parameters) -> dict[str, Any]:
    """Return the values of all declared parameters as they are used, after their checks."""
    return {name: check_parameter(estimator, name) for name in estimator._declared}


# Checks ---------------------------------------------------------------------------------------------------------------


def number(low: float, high: float = np.inf, *, low_open: bool = False) -> Check:
    """Return the check of a finite number in ``[low, high]``, or in ``(low, high]`` with ``low_open``."""
    return lambda name, value: validation.check_number(name, value, low, low_open=low_open, high=high)


def integer(low: int) -> Check:
    """Return the check of an integer of at least ``low``."""
    return lambda name, value: validation.check_integer(name, value, low)


def boolean(name: str, value: Any) -> bool:
    """Return a value that is true or false; a `ValueError` for any other."""
    if np.ndim(value) > 0 or value not in (False, True):
        raise ValueError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def _choice(allowed: tuple[str, ...], name: str, value: Any) -> str:
    return validation.check_choice(name, value, allowed)


def _rank(name: str, value: Any) -> int | None:
    return None if value is None else validation.check_integer(name, value, 0)


def probability_method(name: str, value: Any) -> str | None:
    if value is not None and value not in ("sigmoid", "isotonic"):
        raise ValueError(f"{name} must be None, 'sigmoid' or 'isotonic', got {value!r}.")
    return value


# Declarations ---------------------------------------------------------------------------------------------------------


class NoiseParameters(Parameters):
    """The two parameters that the CV classes choose."""

    noise: Any = parameter(default=0.1)
    C: float = parameter(default=1.0, check=number(0.0, low_open=True))


class SharedParameters(Parameters):
    """Parameters of all models, also of those that choose noise and ``C``."""

    l1_ratio: float = parameter(default=0.0, check=number(0.0, 1.0))
    solver: str = parameter(default="auto")
    tol: float = parameter(default=1e-4, check=number(0.0))
    max_iter: int = parameter(default=1000, check=integer(1))
    fit_intercept: bool = parameter(default=True, check=boolean)
    missing: str = parameter(default="error", choices=MISSING_CHOICES)
    missing_rank: int | None = parameter(default=None, check=_rank)
    conformal: bool = parameter(default=False, check=boolean)


class ClassParameters(Parameters):
    """Parameters of all classifiers."""

    multi_class: str = parameter(default="ovr", choices=("ovr", "ovo", "multinomial"))
    class_weight: Any = parameter(default=None)
    probability: str | None = parameter(default=None, check=probability_method)


class RunParameters(Parameters):
    """Parameters that do not change the result."""

    n_jobs: int | None = parameter(default=None, check=validation.check_n_jobs)
    verbose: int = parameter(default=0)


class ModelParameters(RunParameters, SharedParameters, NoiseParameters):
    """Parameters of the models with a given noise and ``C``."""

    warm_start: bool = parameter(default=False, check=boolean)


class ApproximationParameter(Parameters):
    """The parameter of the models with a bound and a normal approximation of the expected loss."""

    approximation: str = parameter(default="bound", choices=("bound", "gaussian"))


class LossParameter(Parameters):
    """The parameter of the classifiers with any loss."""

    loss: Any = parameter(default="hinge", kw_only=False)


class EpsilonParameter(Parameters):
    """The parameter of support vector regression."""

    epsilon: float = parameter(default=0.1, check=number(0.0))
