"""The paper's losses of scores with mean and variance, as differentiable functions of tensors.

They are `dropmargin.losses.Hinge` and `dropmargin.losses.Logistic`, summed over one-vs-rest problems. No branch of
``torch.where`` may have a gradient that is not finite, because its product with zero is NaN: hence the clamps.
"""

from __future__ import annotations

import torch
from torch import Tensor


def expected_hinge_loss(
    mean: Tensor, variance: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Return the paper's bound on the expected hinge loss of noisy scores.

    Parameters
    ----------
    mean : Tensor of shape (n_rows, n_classes) or (n_rows, 1)
        The means of the scores. The classes are compared one with the rest; one score tells class 1 from class 0.
    variance : Tensor of the same shape
        Their variances, not negative.
    target : Tensor of shape (n_rows,)
        The indices of the classes, integers. A row of any other index is in none of the classes.
    margin : float, default=1.0
        The least score of a row that has no loss without noise.
    reduction : {"mean", "sum", "none"}, default="mean"
        The mean over the rows of the sum over the scores, the sum over both, or one loss per row.

    Returns
    -------
    loss : Tensor
        A number, or with ``reduction="none"`` a tensor of shape (n_rows,).

    See Also
    --------
    MarginalDropoutLinear : Returns mean and variance.
    expected_logistic_loss : A smooth loss whose scores are log-odds.

    Notes
    -----
    With ``z = margin - y mean`` and ``y`` -1 or +1 it is ``(z + sqrt(z^2 + variance)) / 2``, at least
    ``E max(0, margin - y score)`` for every distribution with this mean and variance. Without variance it is the
    ordinary hinge loss. At its kink, ``z = variance = 0``, the derivative by the variance is infinite and taken as 0.

    Examples
    --------
    >>> import torch
    >>> from dropmargin.torch import expected_hinge_loss
    >>> mean, variance = torch.tensor([[2.0], [0.0]]), torch.tensor([[0.0], [0.0]])
    >>> expected_hinge_loss(mean, variance, torch.tensor([1, 1]), reduction="none")
    tensor([0., 1.])
    """
    y, mean, variance = _checked(mean, variance, target)
    along = y * mean - margin
    loss = 0.5 * _excess(along, variance, _radius(along, variance))
    return _reduce(loss, reduction)


def expected_logistic_loss(mean: Tensor, variance: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the paper's bound on the expected logistic loss of noisy scores.

    Parameters
    ----------
    mean : Tensor of shape (n_rows, n_classes) or (n_rows, 1)
        The means of the scores. The classes are compared one with the rest; one score tells class 1 from class 0.
    variance : Tensor of the same shape
        Their variances, not negative.
    target : Tensor of shape (n_rows,)
        The indices of the classes, integers. A row of any other index is in none of the classes.
    reduction : {"mean", "sum", "none"}, default="mean"
        The mean over the rows of the sum over the scores, the sum over both, or one loss per row.

    Returns
    -------
    loss : Tensor
        A number, or with ``reduction="none"`` a tensor of shape (n_rows,).

    See Also
    --------
    MarginalDropoutLinear : Returns mean and variance.
    expected_hinge_loss : The loss of support vector machines.

    Notes
    -----
    With ``r^2 = mean^2 + variance`` and ``y`` -1 or +1 it is ``log(2 cosh(r / 2)) - y mean / 2``, at least
    ``E log(1 + exp(-y score))`` for every distribution with this mean and variance. Without variance it is the ordinary
    logistic loss.

    Examples
    --------
    >>> import torch
    >>> from dropmargin.torch import expected_logistic_loss
    >>> expected_logistic_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([1]))
    tensor(0.6931)
    """
    y, mean, variance = _checked(mean, variance, target)
    along = y * mean
    r = _radius(along, variance)
    far = 0.5 * _excess(along, variance, r) + torch.log1p(torch.exp(-r))
    # Near zero, log(2 cosh(r / 2)) is smooth in r^2, and the derivatives of the formula above cancel.
    is_near = r < 0.05
    square = torch.where(is_near, mean * mean + variance, torch.zeros_like(r))
    series = square * (1.0 / 8.0 + square * (-1.0 / 192.0 + square * (1.0 / 2880.0 - square * 17.0 / 645120.0)))
    near = 0.6931471805599453 + series - 0.5 * along
    return _reduce(torch.where(is_near, near, far), reduction)


def _checked(mean: Tensor, variance: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return +1 for the class of a row and -1 for the others, and the moments in at least single precision."""
    if mean.dim() != 2 or mean.shape != variance.shape:
        raise ValueError(
            f"mean and variance must have the shape (n_rows, n_scores), got {list(mean.shape)} and "
            f"{list(variance.shape)}."
        )
    if target.shape != mean.shape[:1] or target.is_floating_point():
        raise ValueError(
            f"target must be one integer for each row, the index of its class, got {target.dtype} of shape "
            f"{list(target.shape)} for {mean.shape[0]} rows."
        )
    dtype = torch.promote_types(mean.dtype, torch.float32)
    first = 1 if mean.shape[1] == 1 else 0
    classes = torch.arange(first, first + mean.shape[1], device=mean.device)
    return 2.0 * (target[:, None] == classes).to(dtype) - 1.0, mean.to(dtype), variance.to(dtype)


def _radius(u: Tensor, v: Tensor) -> Tensor:
    """Return ``sqrt(u^2 + v)``, also where ``u^2`` overflows or both are zero."""
    smallest = 1e-18  # its square is a normal number in single precision
    scale = torch.maximum(u.abs(), v.sqrt()).detach().clamp(min=smallest)
    return scale * ((u / scale).square() + v / scale / scale).clamp(min=smallest).sqrt()


def _excess(along: Tensor, v: Tensor, r: Tensor) -> Tensor:
    """Return ``r - along`` without cancellation where ``along`` is large."""
    return torch.where(along > 0.0, v / (r + along.abs()), r - along)


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    rows = loss.sum(dim=1)
    if reduction == "none":
        return rows
    if reduction == "mean":
        return rows.mean()
    if reduction == "sum":
        return rows.sum()
    raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got '{reduction}'.")
