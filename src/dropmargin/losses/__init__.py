"""Losses under noise: functions of the score's mean and variance, or of its log moment generating function."""

from typing import Any

from dropmargin.losses.base import Loss, MGFLoss, MomentLoss
from dropmargin.losses.gaussian import GaussianHinge, GaussianLogistic
from dropmargin.losses.mgf import Exponential, MCFLogistic
from dropmargin.losses.radial import Hinge, Logistic, Quadratic, RadialLoss, SmoothedHinge

#: loss name -> approximation -> class
LOSSES: dict[str, dict[str, type[Loss]]] = {
    "hinge": {"bound": Hinge, "gaussian": GaussianHinge},
    "logistic": {"bound": Logistic, "gaussian": GaussianLogistic},
    "quadratic": {"bound": Quadratic},
    "exponential": {"bound": Exponential},
    "mcf-logistic": {"bound": MCFLogistic},
}


def as_loss(loss: Any, approximation: str = "bound") -> Loss:
    """Return the loss of the parameters ``loss``, a name of `LOSSES` or a `Loss`, and ``approximation``."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss must be one of {sorted(LOSSES)} or a loss object, got {loss!r}.")
    approximations = LOSSES[loss]
    if approximation not in ("bound", "gaussian"):
        raise ValueError(f"approximation must be 'bound' or 'gaussian', got {approximation!r}.")
    if approximation not in approximations:
        raise ValueError(
            f"approximation={approximation!r} is not available for the {loss} loss, whose expectation needs none; "
            "set approximation='bound', or choose loss='hinge' or 'logistic'."
        )
    return approximations[approximation]()


__all__ = [
    "LOSSES",
    "Exponential",
    "GaussianHinge",
    "GaussianLogistic",
    "Hinge",
    "Logistic",
    "Loss",
    "MCFLogistic",
    "MGFLoss",
    "MomentLoss",
    "Quadratic",
    "RadialLoss",
    "SmoothedHinge",
    "as_loss",
]
