"""Losses under noise: functions of the score's mean and variance, or of its log moment generating function."""

from collections.abc import Mapping
from typing import Any

from dropmargin.losses.base import Loss, MGFLoss, MomentLoss, SumOfLosses
from dropmargin.losses.gaussian import GaussianHinge, GaussianLogistic
from dropmargin.losses.mgf import Exponential, MCFLogistic
from dropmargin.losses.radial import Hinge, Logistic, Quadratic, RadialLoss, SmoothedHinge
from dropmargin.losses.regression import EpsilonInsensitive, Huber

#: loss name -> approximation -> class, for classification
LOSSES: dict[str, dict[str, type[Loss]]] = {
    "hinge": {"bound": Hinge, "gaussian": GaussianHinge},
    "logistic": {"bound": Logistic, "gaussian": GaussianLogistic},
    "quadratic": {"bound": Quadratic},
    "exponential": {"bound": Exponential},
    "mcf-logistic": {"bound": MCFLogistic},
}


#: the same for regression
REGRESSION_LOSSES: dict[str, dict[str, type[Loss]]] = {
    "quadratic": {"bound": Quadratic},
    "epsilon-insensitive": {"bound": EpsilonInsensitive},
    "huber": {"bound": Huber},
}


def as_loss(loss: Any, approximation: str = "bound", losses: Mapping[str, dict[str, type[Loss]]] = LOSSES) -> Loss:
    """Return the loss of the parameters ``loss``, a name of ``losses`` or a `Loss`, and ``approximation``."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in losses:
        raise ValueError(f"loss must be one of {sorted(losses)} or a loss object, got {loss!r}.")
    approximations = losses[loss]
    if approximation not in ("bound", "gaussian"):
        raise ValueError(f"approximation must be 'bound' or 'gaussian', got {approximation!r}.")
    if approximation not in approximations:
        others = " or ".join(repr(name) for name, known in losses.items() if approximation in known)
        raise ValueError(
            f"approximation={approximation!r} is not available for the {loss} loss; set approximation='bound', or "
            f"choose loss={others}."
        )
    return approximations[approximation]()


__all__ = [
    "LOSSES",
    "REGRESSION_LOSSES",
    "EpsilonInsensitive",
    "Exponential",
    "GaussianHinge",
    "GaussianLogistic",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "MCFLogistic",
    "MGFLoss",
    "MomentLoss",
    "Quadratic",
    "RadialLoss",
    "SmoothedHinge",
    "SumOfLosses",
    "as_loss",
]
