"""A last layer for PyTorch networks whose dropout is integrated out, and the paper's losses of it.

>>> import torch
>>> from dropmargin.torch import MarginalDropoutLinear, expected_hinge_loss
>>> network = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), MarginalDropoutLinear(50, 3, rate=0.5))
>>> mean, variance = network(torch.randn(8, 20))
>>> loss = expected_hinge_loss(mean, variance, torch.randint(3, (8,)))
>>> loss.backward()
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("dropmargin.torch needs PyTorch: pip install 'dropmargin[torch]'") from error

from dropmargin.torch.head import MarginalDropoutLinear
from dropmargin.torch.losses import expected_hinge_loss, expected_logistic_loss

__all__ = ["MarginalDropoutLinear", "expected_hinge_loss", "expected_logistic_loss"]
