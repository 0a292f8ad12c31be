"""
Sensors that die
================

An array of 16 sensors with 8 features each tells 6 kinds of events. All sensors receive strong interference, which a
classifier can cancel by differences between features: of one sensor, or of several. Differences between sensors
cancel it no longer when one of these is dead. ``DropoutNoise(groups=...)`` drops whole sensors in training.

At prediction some sensors are dead, which is known: their features are NaN. Parameters are chosen by cross-validation
on training data: those of `DropoutSVCCV` by the expected accuracy for a quarter of the sensors dead (``target_noise``),
those of the model that is trained on copies with as many dead sensors on such copies, the others on complete rows.

``python examples/plot_sensors.py --all`` has `sklearn.impute.IterativeImputer` as well, which takes some minutes.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from dropmargin import DropoutNoise, DropoutSVCCV, deletion_curve
from dropmargin.errors import ParameterWarning

N_SENSORS, N_FEATURES, N_CLASSES = 16, 8, 6
GROUPS = np.repeat(np.arange(N_SENSORS), N_FEATURES)
DEAD = [0, 1, 2, 4, 8]


def make_events(n_events: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of events and their kinds; the array itself is the same for every seed."""
    array = np.random.default_rng(0)
    signals = 0.5 * array.normal(size=(N_CLASSES, len(GROUPS)))
    interference = 5.0 * array.normal(size=(3, len(GROUPS)))
    rng = np.random.default_rng(seed)
    kinds = rng.integers(N_CLASSES, size=n_events)
    noise = rng.normal(size=(n_events, len(GROUPS)))
    return signals[kinds] + rng.normal(size=(n_events, 3)) @ interference + noise, kinds


X, y = make_events(1000, seed=1)
X_test, y_test = make_events(2000, seed=2)

# %%
# Linear models of scikit-learn: after imputation of means, trained on the rows and ten copies of them with a quarter of
# the sensors dead, and, with ``--all``, after imputation by regressions on the other features.
warnings.simplefilter("ignore", ParameterWarning)  # the grids are small, so that the example takes seconds
Cs = [0.01, 0.1, 1.0]
copies = np.tile(X, (11, 1))
copies[(np.random.default_rng(0).uniform(size=(len(copies), N_SENSORS)) < 0.25)[:, GROUPS]] = np.nan
copies[: len(X)] = X
folds = list(GroupKFold(3).split(copies, groups=np.tile(np.arange(len(X)), 11)))  # the copies of a row stay together
svm = GridSearchCV(LinearSVC(dual=False), {"C": Cs}, cv=3)
logistic = GridSearchCV(LogisticRegression(max_iter=5_000), {"C": Cs}, cv=3)
of_copies = GridSearchCV(LogisticRegression(max_iter=5_000), {"C": Cs}, cv=folds)
iterative = IterativeImputer(max_iter=5, tol=0.0, random_state=0)
models = {
    "LinearSVC, means": make_pipeline(SimpleImputer(), svm).fit(X, y),
    "LogisticRegression, copies": make_pipeline(SimpleImputer(), of_copies).fit(copies, np.tile(y, 11)),
}
if "--all" in sys.argv:
    models["LogisticRegression, iterative"] = make_pipeline(iterative, logistic).fit(X, y)

# %%
# The same rates and values of ``C`` for dropout of single features and of whole sensors, with rescaled scores; whole
# sensors with conditional scores; and conditional scores without noise.
rates, target = [0.03, 0.1, 0.3], DropoutNoise(0.25, groups=GROUPS)
sensors = [DropoutNoise(rate, groups=GROUPS) for rate in rates]
for name, noises, missing in (
    ("DropoutSVC, single features", rates, "rescale"),
    ("DropoutSVC, whole sensors", sensors, "rescale"),
    ("whole sensors, conditional", sensors, "conditional"),
    ("no noise, conditional", [None], "conditional"),
):
    models[name] = DropoutSVCCV(noises=noises, Cs=Cs, cv=3, target_noise=target, missing=missing).fit(X, y)

# %%
# The test error with some of the sensors dead, mean of 20 draws.
fig, ax = plt.subplots()
print(f"{'test error, dead sensors':30}" + "".join(f"{dead:>7}" for dead in DEAD))
for name, model in models.items():
    curve = deletion_curve(
        model,
        X_test,
        y_test,
        levels=np.array(DEAD) / N_SENSORS,
        strategy="columns",
        groups=GROUPS,
        fill=np.nan,
        n_repeats=20,
        random_state=0,
    )
    print(f"{name:30}" + "".join(f"{1.0 - accuracy:7.3f}" for accuracy in curve.mean))
    ax.plot(DEAD, 1.0 - curve.mean, "o-", label=name)
ax.set(xlabel="dead sensors of 16", ylabel="test error")
ax.legend()
plt.show()
