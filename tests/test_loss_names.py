"""Losses by their names, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dealing import round_robin, together
from dropmargin.losses import (
    LOSSES,
    GaussianHinge,
    Hinge,
    as_loss,
)

# Names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "approximation", "cls"),
    [(name, approximation, cls) for name, known in LOSSES.items() for approximation, cls in known.items()],
)
def test_as_loss_knows_every_name(name, approximation, cls):
    assert type(as_loss(name, approximation)) is cls


def test_as_loss_passes_a_loss_through():
    loss = Hinge(margin=3.0)
    assert as_loss(loss) is loss


@together("loss", ["squared", None, 3, ["hinge"], Hinge])
def test_as_loss_refuses_what_is_no_loss(loss):
    with pytest.raises(ValueError, match=r"loss must be one of .*hinge.*got"):
        as_loss(loss)


def test_as_loss_refuses_an_unknown_approximation():
    with pytest.raises(ValueError, match=r"approximation must be 'bound' or 'gaussian', got 'taylor'"):
        as_loss("hinge", "taylor")


@pytest.mark.parametrize("loss", ["quadratic", "exponential", "mcf-logistic"])
def test_as_loss_refuses_an_approximation_where_none_is_needed(loss):
    with pytest.raises(ValueError, match=rf"approximation='gaussian' is not available for the {loss} loss.*hinge"):
        as_loss(loss, "gaussian")


@together(("margin", "cls"), round_robin([0.0, -1.0, np.nan, np.inf, "wide", None], [Hinge, GaussianHinge]))
def test_a_margin_must_be_positive(margin, cls):
    with pytest.raises(ValueError, match=r"margin.*must be a positive number, got"):
        cls(margin=margin)
