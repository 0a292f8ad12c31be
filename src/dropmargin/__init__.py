"""Linear models that survive the loss of their features: dropout training in closed form."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

# Names come from these packages when first asked for: `dropmargin --help` needs none of them, nor scikit-learn.
# Type checkers read `__init__.pyi`.
_PACKAGES = {
    "estimators": [
        "DropoutLogisticRegression",
        "DropoutRidge",
        "DropoutSVC",
        "DropoutSVR",
        "MCFClassifier",
        "NoisyLinearClassifier",
        "NoisyLinearRegressor",
    ],
    "evaluation": ["DeletionCurveDisplay", "corruption_curve", "deletion_curve", "explain", "top_features"],
    "io.model": ["load", "save"],
    "model_selection": [
        "DropoutLogisticRegressionCV",
        "DropoutRidgeCV",
        "DropoutSVCCV",
        "DropoutSVRCV",
        "NoisyLinearClassifierCV",
        "noise_path",
    ],
    "noise": [
        "DropoutNoise",
        "GaussianNoise",
        "LaplaceNoise",
        "NoiseTransformer",
        "PoissonNoise",
        "estimate_dropout_rates",
    ],
    "plotting": ["NoiseGridDisplay", "NoisePathDisplay"],
    "tables": ["FourierFeatures", "TableClassifier", "TableRegressor"],
    "versions": ["show_versions"],
}
_HOMES = {name: package for package, names in _PACKAGES.items() for name in names}
# Packages of the library that are attributes of it. Dask and PyTorch are imported only if `dropmargin.dask` and
# `dropmargin.torch` are used.
_ATTRIBUTES = {package.partition(".")[0] for package in _PACKAGES if package != "versions"} | {
    "dask",
    "streaming",
    "torch",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name, or a package of the library, when it is first used (PEP 562)."""
    if name in _HOMES:
        value = getattr(import_module(f"dropmargin.{_HOMES[name]}"), name)
    elif name in _ATTRIBUTES:
        value = import_module(f"dropmargin.{name}")
    else:
        raise AttributeError(f"module 'dropmargin' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    special = {name for name in globals() if name.startswith("__")}
    return sorted({*special, *__all__, *_ATTRIBUTES})
