"""A linear layer with dropout of its inputs in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class MarginalDropoutLinear(nn.Linear):
    """Linear layer that returns mean and variance of its scores under dropout of its inputs.

    It takes the place of ``nn.Sequential(nn.Dropout(rate), nn.Linear(in_features, out_features))`` at the end of a
    network. There, a score is a random variable in training; here nothing is sampled, and the losses
    `expected_hinge_loss` and `expected_logistic_loss` take the mean and the variance of each score.

    Parameters
    ----------
    in_features : int
        The number of inputs.
    out_features : int
        The number of scores: one for each class, or 1 for two classes.
    rate : float, default=0.5
        The probability that an input is dropped, in [0, 1). A dropped input is zero, a kept one is divided by
        ``1 - rate``, so the mean is the score without dropout.
    bias : bool, default=True
        Whether the layer has an intercept, which is not dropped.
    device, dtype : default=None
        As in ``torch.nn.Linear``.

    Attributes
    ----------
    weight : Parameter of shape (out_features, in_features)
        The coefficients. Weight and bias are those of ``torch.nn.Linear``, and so is the ``state_dict``: each layer
        loads that of the other.
    bias : Parameter of shape (out_features,)
        The intercepts, or None.

    See Also
    --------
    expected_hinge_loss : The loss of support vector machines.
    expected_logistic_loss : The loss of logistic regression.
    dropmargin.DropoutSVC : The same loss and noise without a network, with a solver that ends at the optimum.

    Notes
    -----
    With ``c = rate / (1 - rate)`` and inputs ``x``, the variance of the score ``w.x + b`` is ``c sum_d w_d^2 x_d^2``.
    In evaluation mode (``eval()``) there is no dropout, as in ``torch.nn.Dropout``: the variance is zero, and the
    losses are the ordinary ones. The label of a row is the class of the largest mean in both modes.

    Examples
    --------
    >>> import torch
    >>> from dropmargin.torch import MarginalDropoutLinear
    >>> layer = MarginalDropoutLinear(2, 1, rate=0.5, bias=False)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[1.0, 2.0]])})
    >>> mean, variance = layer(torch.tensor([[3.0, 1.0]]))
    >>> mean.item(), variance.item()
    (5.0, 13.0)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rate: float = 0.5,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"rate must be a probability in [0, 1), got {rate!r}.")
        super().__init__(in_features, out_features, bias, device, dtype)
        self.rate = float(rate)

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return mean and variance of the scores.

        Parameters
        ----------
        input : Tensor of shape (..., in_features)
            The features of the rows.

        Returns
        -------
        mean : Tensor of shape (..., out_features)
            The scores without dropout.
        variance : Tensor of shape (..., out_features)
            Their variance under dropout; zero in evaluation mode.
        """
        mean = functional.linear(input, self.weight, self.bias)
        if not self.training:
            return mean, torch.zeros_like(mean)
        variance = functional.linear(input.square(), self.weight.square())
        return mean, self.rate / (1.0 - self.rate) * variance

    def extra_repr(self) -> str:
        """Return the parameters as text, for ``repr``."""
        return f"{super().extra_repr()}, rate={self.rate}"
