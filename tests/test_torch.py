"""The head for PyTorch networks: the library's losses, with their derivatives. A job of its own in CI has torch."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC
from dropmargin.losses import Hinge, Logistic

torch = pytest.importorskip("torch", reason="the head needs PyTorch: pip install 'dropmargin[torch]'")
head = pytest.importorskip("dropmargin.torch")

LOSSES = {"hinge": (head.expected_hinge_loss, Hinge()), "logistic": (head.expected_logistic_loss, Logistic())}
each_loss = pytest.mark.parametrize("name", LOSSES)


def _moments(seed=0, n_rows=300, n_classes=4):
    """Return means and variances over many orders of magnitude, with zeros among them, and classes."""
    rng = np.random.default_rng(seed)
    shape = (n_rows, n_classes)
    m = rng.normal(size=shape) * 10.0 ** rng.uniform(-8, 8, shape)
    v = 10.0 ** rng.uniform(-12, 8, shape) * (rng.random(shape) < 0.7)
    return m, v, rng.integers(max(n_classes, 2), size=n_rows)


def _by_torch(name, m, v, target, dtype=torch.float64):
    """Return the losses of the rows and the derivatives by means and variances."""
    m, v = (torch.tensor(part, dtype=dtype, requires_grad=True) for part in (m, v))
    rows = LOSSES[name][0](m, v, torch.tensor(target), reduction="none")
    rows.sum().backward()
    return [part.detach().numpy() for part in (rows, m.grad, v.grad)]


def _by_library(name, m, v, target):
    n_classes = m.shape[1]
    y = 2.0 * (target[:, None] == (np.arange(n_classes) if n_classes > 1 else [1])) - 1.0
    loss = LOSSES[name][1]
    return [loss.value(y, m, v).sum(axis=1), *loss.gradient(y, m, v)]


@each_loss
@pytest.mark.parametrize("n_classes", [1, 4])
def test_values_and_derivatives_are_those_of_the_library(name, n_classes):
    m, v, target = _moments(n_classes=n_classes)
    for found, wanted in zip(_by_torch(name, m, v, target), _by_library(name, m, v, target), strict=True):
        assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@each_loss
def test_small_radii(name):
    """Where the logistic loss changes its formula, and next to the kink of the hinge."""
    radius = 10.0 ** np.linspace(-12, 1, 500)
    for angle in (0.0, 0.3, 1.5, 2.9, np.pi):
        offset = 1.0 if name == "hinge" else 0.0
        m, v = offset + radius * np.cos(angle), np.square(radius * np.sin(angle))
        parts = _by_torch(name, m[:, None], v[:, None], np.ones(500, dtype=int))
        for found, wanted in zip(
            parts, _by_library(name, m[:, None], v[:, None], np.ones(500, dtype=int)), strict=True
        ):
            assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_moments_have_finite_derivatives(name, dtype):
    numbers = np.array([0.0, 1e-30, 1e-10, 1.0, 1e10, 1e18, 1e30])
    m, v = (grid.reshape(-1, 1) for grid in np.meshgrid(np.concatenate([-numbers, numbers, 1 + numbers]), numbers))
    rows, *gradients = _by_torch(name, m, v, np.ones(len(m), dtype=int), dtype)
    assert np.isfinite(rows).all()
    assert all(np.isfinite(part).all() for part in gradients)
    wanted = _by_library(name, m, v, np.ones(len(m), dtype=int))[0]
    assert_allclose(rows, wanted, rtol=1e-5 if dtype == torch.float32 else 1e-10, atol=1e-6)


@each_loss
def test_single_precision(name):
    m, v, target = _moments()
    parts = _by_torch(name, m, v, target, torch.float32)
    wanted = _by_library(name, *(part.astype(np.float32).astype(float) for part in (m, v)), target)
    for found, want in zip(parts, wanted, strict=True):
        assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@each_loss
def test_half_precision_is_computed_in_single(name):
    loss = LOSSES[name][0]
    m, v, target = torch.zeros(3, 2, dtype=torch.float16), torch.ones(3, 2, dtype=torch.float16), torch.zeros(3).long()
    assert loss(m, v, target).dtype == torch.float32
    assert_allclose(loss(m, v, target), loss(m.double(), v.double(), target), rtol=1e-6)


@each_loss
def test_without_variance_it_is_the_ordinary_loss(name):
    m, target = torch.randn(50, 1, dtype=torch.float64), torch.randint(2, (50,))
    along = (2 * target - 1) * m[:, 0]
    wanted = torch.relu(1 - along) if name == "hinge" else torch.nn.functional.softplus(-along)
    assert_allclose(LOSSES[name][0](m, torch.zeros_like(m), target, reduction="none"), wanted, atol=1e-12)


def test_variance_is_that_of_sampled_dropout():
    torch.manual_seed(0)
    layer, x = head.MarginalDropoutLinear(5, 3, rate=0.4), torch.randn(2, 5)
    mean, variance = layer(x)
    drawn = torch.stack([torch.nn.functional.linear(torch.nn.functional.dropout(x, 0.4), layer.weight, layer.bias)
                         for _ in range(20_000)])  # fmt: skip
    assert_allclose(drawn.mean(0).detach(), mean.detach(), atol=0.03)
    assert_allclose(drawn.var(0).detach(), variance.detach(), rtol=0.05)


def test_evaluation_has_no_dropout():
    layer, x = head.MarginalDropoutLinear(5, 3), torch.randn(2, 5)
    assert (layer(x)[1] > 0).all()
    mean, variance = layer.eval()(x)
    assert_allclose(mean.detach(), torch.nn.functional.linear(x, layer.weight, layer.bias).detach())
    assert (variance == 0).all()


@pytest.mark.parametrize(("name", "make"), [("hinge", DropoutSVC), ("logistic", DropoutLogisticRegression)])
def test_the_optimum_is_that_of_the_library(name, make):
    """The library's solver and torch's L-BFGS minimise the same objective."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    model = make(noise=DropoutNoise(0.3, reference="zero"), C=0.5, tol=1e-10).fit(X, y)
    layer = head.MarginalDropoutLinear(4, 3, rate=0.3, dtype=torch.float64)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=500, tolerance_grad=1e-10, tolerance_change=1e-14,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def objective():
        optimiser.zero_grad()
        loss = LOSSES[name][0](*layer(torch.tensor(X)), torch.tensor(y), reduction="sum")
        value = 0.5 * layer.weight.square().sum() + 0.5 * loss
        value.backward()
        return value

    optimiser.step(objective)
    assert_allclose(layer.weight.detach(), model.coef_, atol=1e-4)
    assert_allclose(layer.bias.detach(), model.intercept_, atol=1e-4)
    assert_allclose(objective().item(), model.objective_, rtol=1e-8)


def test_derivatives_reach_the_layers_below():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), head.MarginalDropoutLinear(6, 2)).double()
    x, target = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    first = network[0].weight

    def loss_of(weight):
        return head.expected_logistic_loss(*torch.func.functional_call(network, {"0.weight": weight}, (x,)), target)

    assert torch.autograd.gradcheck(loss_of, (first.detach().requires_grad_(),))


def test_state_dict_is_that_of_a_linear_layer():
    layer, plain = head.MarginalDropoutLinear(5, 3), torch.nn.Linear(5, 3)
    layer.load_state_dict(plain.state_dict())
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    plain.load_state_dict(torch.load(file))
    x = torch.randn(2, 5)
    assert_allclose(layer(x)[0].detach(), plain(x).detach())
    assert copy.deepcopy(layer).rate == layer.rate


@each_loss
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted(name):
    m, v, target = (torch.tensor(part) for part in _moments())
    layer = head.MarginalDropoutLinear(5, 3)
    x = torch.randn(2, 5)
    for found, wanted in zip(torch.jit.script(layer)(x), layer(x), strict=True):
        assert_allclose(found.detach(), wanted.detach())
    loss = LOSSES[name][0]
    assert_allclose(torch.jit.script(loss)(m, v, target), loss(m, v, target))


@each_loss
@pytest.mark.slow
def test_compiled(name):
    """Head and loss are one graph, values and derivatives as without."""
    network = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), head.MarginalDropoutLinear(8, 3))
    x, target = torch.randn(20, 5), torch.randint(3, (20,))

    def loss_of(x):
        return LOSSES[name][0](*network(x), target)

    gradients = []
    for function in (loss_of, torch.compile(loss_of, fullgraph=True)):
        network.zero_grad()
        function(x).backward()
        gradients.append(network[0].weight.grad.clone())
    assert_allclose(*gradients, atol=1e-6)


@each_loss
def test_errors_name_the_parameter(name):
    loss = LOSSES[name][0]
    m = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"mean and variance .* \[3, 2\] and \[3, 1\]"):
        loss(m, torch.zeros(3, 1), torch.zeros(3).long())
    with pytest.raises(ValueError, match=r"target must be one integer .*float32"):
        loss(m, m, torch.zeros(3))
    with pytest.raises(ValueError, match="target must be one integer"):
        loss(m, m, torch.zeros(2).long())
    with pytest.raises(ValueError, match="reduction must be 'mean', 'sum' or 'none', got 'max'"):
        loss(m, m, torch.zeros(3).long(), reduction="max")


@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan")])
def test_a_rate_is_a_probability_below_one(rate):
    with pytest.raises(ValueError, match="rate must be"):
        head.MarginalDropoutLinear(2, 2, rate=rate)


@pytest.mark.parametrize("name", ["MarginalDropoutLinear", "expected_hinge_loss", "expected_logistic_loss"])
def test_numpydoc_validates(name):
    from test_documentation import NOT_CHECKED

    validate = pytest.importorskip("numpydoc.validate").validate
    assert [error for error in validate(f"dropmargin.torch.{name}")["errors"] if error[0] not in NOT_CHECKED] == []
