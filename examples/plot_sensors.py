"""
Sensors that die
================

An array of 16 sensors with 8 features each tells 6 kinds of events. All sensors receive strong interference, which a
classifier can cancel by differences between features: of one sensor, or of several. Differences between sensors
cancel it no longer when one of these is dead. ``DropoutNoise(groups=...)`` drops whole sensors in training.

At prediction some sensors are dead, which is known: their features are NaN. Parameters are chosen by cross-validation
on complete training data, those of `DropoutSVCCV` by the expected accuracy for a quarter of the sensors dead
(``target_noise``).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from dropmargin import DropoutNoise, DropoutSVCCV, deletion_curve

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
# Three models: the same rates and values of ``C`` for dropout of single features and of whole sensors.
rates, Cs = [0.03, 0.1, 0.3], [0.01, 0.1, 1.0]
search = {"Cs": Cs, "cv": 3, "target_noise": DropoutNoise(0.25, groups=GROUPS), "missing": "rescale"}
svm = make_pipeline(SimpleImputer(), LinearSVC(loss="hinge", max_iter=20_000))
models = {
    "LinearSVC, mean imputation": GridSearchCV(svm, {"linearsvc__C": Cs}, cv=3),
    "DropoutSVC, single features": DropoutSVCCV(noises=rates, **search),
    "DropoutSVC, whole sensors": DropoutSVCCV(noises=[DropoutNoise(rate, groups=GROUPS) for rate in rates], **search),
}

# %%
# The test error with some of the sensors dead, mean of 20 draws.
fig, ax = plt.subplots()
print(f"{'test error, dead sensors':28}" + "".join(f"{dead:>7}" for dead in DEAD))
for name, model in models.items():
    curve = deletion_curve(
        model.fit(X, y),
        X_test,
        y_test,
        levels=np.array(DEAD) / N_SENSORS,
        strategy="columns",
        groups=GROUPS,
        fill=np.nan,
        n_repeats=20,
        random_state=0,
    )
    print(f"{name:28}" + "".join(f"{1.0 - accuracy:7.3f}" for accuracy in curve.mean))
    ax.plot(DEAD, 1.0 - curve.mean, "o-", label=name)
ax.set(xlabel="dead sensors of 16", ylabel="test error")
ax.legend()
plt.show()
