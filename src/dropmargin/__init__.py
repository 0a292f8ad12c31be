"""Linear models that survive the loss of their features: dropout training in closed form."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dropmargin.estimators import (
        DropoutLogisticRegression,
        DropoutRidge,
        DropoutSVC,
        DropoutSVR,
        MCFClassifier,
        NoisyLinearClassifier,
        NoisyLinearRegressor,
    )
    from dropmargin.evaluation import corruption_curve, deletion_curve
    from dropmargin.explanation import explain, top_features
    from dropmargin.io.model import load, save
    from dropmargin.model_selection import (
        DropoutLogisticRegressionCV,
        DropoutRidgeCV,
        DropoutSVCCV,
        DropoutSVRCV,
        NoisyLinearClassifierCV,
        noise_path,
    )
    from dropmargin.noise import (
        DropoutNoise,
        GaussianNoise,
        LaplaceNoise,
        NoiseTransformer,
        PoissonNoise,
        estimate_dropout_rates,
    )
    from dropmargin.plotting import DeletionCurveDisplay, NoiseGridDisplay, NoisePathDisplay
    from dropmargin.versions import show_versions

__version__ = "0.2.0.dev0"

__all__ = [
    "DeletionCurveDisplay",
    "DropoutLogisticRegression",
    "DropoutLogisticRegressionCV",
    "DropoutNoise",
    "DropoutRidge",
    "DropoutRidgeCV",
    "DropoutSVC",
    "DropoutSVCCV",
    "DropoutSVR",
    "DropoutSVRCV",
    "GaussianNoise",
    "LaplaceNoise",
    "MCFClassifier",
    "NoiseGridDisplay",
    "NoisePathDisplay",
    "NoiseTransformer",
    "NoisyLinearClassifier",
    "NoisyLinearClassifierCV",
    "NoisyLinearRegressor",
    "PoissonNoise",
    "corruption_curve",
    "deletion_curve",
    "estimate_dropout_rates",
    "explain",
    "load",
    "noise_path",
    "save",
    "show_versions",
    "top_features",
]

# Names come from these packages when first asked for: `dropmargin --help` needs none of them, nor scikit-learn.
_PACKAGES = {
    "estimators": (
        "DropoutLogisticRegression",
        "DropoutRidge",
        "DropoutSVC",
        "DropoutSVR",
        "MCFClassifier",
        "NoisyLinearClassifier",
        "NoisyLinearRegressor",
    ),
    "evaluation": ("corruption_curve", "deletion_curve"),
    "explanation": ("explain", "top_features"),
    "io.model": ("load", "save"),
    "noise": (
        "DropoutNoise",
        "GaussianNoise",
        "LaplaceNoise",
        "NoiseTransformer",
        "PoissonNoise",
        "estimate_dropout_rates",
    ),
    "model_selection": (
        "DropoutLogisticRegressionCV",
        "DropoutRidgeCV",
        "DropoutSVCCV",
        "DropoutSVRCV",
        "NoisyLinearClassifierCV",
        "noise_path",
    ),
    "plotting": ("DeletionCurveDisplay", "NoiseGridDisplay", "NoisePathDisplay"),
    "versions": ("show_versions",),
}
# Packages of the library that are attributes of it. Dask is imported only if `dropmargin.dask` is used.
_LAZY_PACKAGES = {package.partition(".")[0] for package in _PACKAGES if package != "versions"}
_LAZY_PACKAGES |= {"baselines", "dask", "streaming"}
_HOMES = {name: package for package, names in _PACKAGES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name, or a package of the library, when it is first used (PEP 562)."""
    if name in _HOMES:
        value = getattr(import_module(f"dropmargin.{_HOMES[name]}"), name)
    elif name in _LAZY_PACKAGES:
        value = import_module(f"dropmargin.{name}")
    else:
        raise AttributeError(f"module 'dropmargin' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    special = {name for name in globals() if name.startswith("__")}
    return sorted({*special, *__all__, *_LAZY_PACKAGES})
