"""Dropout of the last layer integrated out, sampled, or left out, in a network with one hidden layer: MNIST.

python -m benchmarks.torch_head [--rows 5000] [--epochs 20] [--seeds 5]

784 pixels, 256 rectified units, ten scores; one-vs-rest hinge or logistic loss; Adam, batches of 100. The three heads
are ``MarginalDropoutLinear`` with the expected losses of `dropmargin.torch`, ``Dropout`` and ``Linear`` with the
ordinary losses, and ``Linear`` alone. Each seed draws its training images from the first 50,000 of the training set;
5,000 of the others are for validation. On these, with a seed that is not used again, each head and loss chooses its
rate, and later in each run the epoch. Test errors are on all 10,000 test images: complete, and
with 30 and 50 % of the pixels zero, the same for all. Needs ``pip install 'dropmargin[torch]'`` and DROPMARGIN_DATA.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import results
from benchmarks.cases import mnist
from dropmargin.torch import MarginalDropoutLinear, expected_hinge_loss, expected_logistic_loss

NAME, KEY = "torch_head", ("loss", "head", "seed")
LOSSES = {"hinge": expected_hinge_loss, "logistic": expected_logistic_loss}
HEADS = ("none", "sampled", "marginal")
RATES, SHARES = (0.02, 0.1, 0.3, 0.5), (0.0, 0.3, 0.5)
HIDDEN, BATCH, STEP, N_VALIDATION, SEED_OF_CHOICE = 256, 100, 3e-3, 5000, 1000


class SampledHead(nn.Sequential):
    """Dropout and a linear layer, with zero as the variance of the scores."""

    def __init__(self, n_inputs: int, n_classes: int, rate: float) -> None:
        super().__init__(nn.Dropout(rate), nn.Linear(n_inputs, n_classes))

    def forward(self, input: Any) -> Any:
        mean = super().forward(input)
        return mean, torch.zeros_like(mean)


def error(network: nn.Module, X: Any, y: Any) -> float:
    """Return the share of wrong labels."""
    network.eval()
    with torch.no_grad():
        wrong = network(X)[0].argmax(dim=1) != y
    network.train()
    return round(float(wrong.double().mean()), 5)


def train(parts: dict[str, Any], loss: str, head: str, rate: float, seed: int, options: Any) -> dict[str, Any]:
    """Return the validation error after each epoch, and the test errors at the epoch where it is least."""
    torch.manual_seed(seed)
    rows = torch.randperm(len(parts["y"]))[: options.rows]
    X, y = parts["X"][rows], parts["y"][rows]
    last = MarginalDropoutLinear(HIDDEN, 10, rate) if head == "marginal" else SampledHead(HIDDEN, 10, rate)
    network = nn.Sequential(nn.Linear(X.shape[1], HIDDEN), nn.ReLU(), last)
    optimiser = torch.optim.Adam(network.parameters(), lr=STEP)
    errors, tests, spent = [], [], 0.0
    for _ in range(options.epochs):
        began = time.process_time()
        for batch in torch.randperm(len(X)).split(BATCH):
            optimiser.zero_grad()
            LOSSES[loss](*network(X[batch]), y[batch]).backward()
            optimiser.step()
        spent += time.process_time() - began
        errors.append(error(network, parts["X_validation"], parts["y_validation"]))
        if errors[-1] < min(errors[:-1], default=1.0):
            tests = [error(network, X_test, parts["y_test"]) for X_test in parts["X_test"]]
    facts = {"rate": rate, "rows": len(X), "seconds_per_epoch": round(spent / options.epochs, 3)}
    return facts | {"validation_errors": errors, "test_errors": tests}


def read_data() -> dict[str, Any]:
    """Return the parts of MNIST as tensors; a test set for each share of missing pixels."""
    X, y, X_test, y_test = mnist()
    rng = np.random.default_rng(0)
    held_out = slice(50_000, 50_000 + N_VALIDATION)
    return {
        "X": torch.tensor(X[:50_000]),
        "y": torch.tensor(y[:50_000]).long(),
        "X_validation": torch.tensor(X[held_out]),
        "y_validation": torch.tensor(y[held_out]).long(),
        "X_test": [torch.tensor(np.where(rng.random(X_test.shape) < share, 0, X_test)) for share in SHARES],
        "y_test": torch.tensor(y_test).long(),
    }


def main() -> None:
    """Choose settings, measure the seeds, and store a row for each run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_head", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000, help="training images (default 5,000)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = read_data()
    for loss in LOSSES:
        for head in HEADS:
            rates = (0.0,) if head == "none" else RATES
            runs = {rate: train(parts, loss, head, rate, SEED_OF_CHOICE, options) for rate in rates}
            errors = {rate: min(run["validation_errors"]) for rate, run in runs.items()}
            chosen = min(errors, key=lambda rate: errors[rate])
            print(f"{loss}, {head}: validation errors {errors}", flush=True)
            for seed in range(options.seeds):
                row = {"loss": loss, "head": head, "seed": seed}
                row |= train(parts, loss, head, chosen, seed, options)
                results.write(NAME, [row], key=KEY, libraries=["torch"])
                print(row["loss"], head, seed, row["test_errors"], row["seconds_per_epoch"], flush=True)


if __name__ == "__main__":
    main()
