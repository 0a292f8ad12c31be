"""
A head on the features of a frozen network
==========================================

A network was trained on the digits 0 to 4. Its hidden layer is kept as it is, and gives the features of the digits 5 to
9, of which few have a label. A linear classifier is the head: `DropoutLogisticRegressionCV` chooses a dropout rate and
``C`` by cross-validation, `LogisticRegressionCV` chooses ``C``.

On complete features the heads are equally good: a hidden layer spreads what it knows over many units, and ``C`` alone
guards against relying on few. Dropout pays where units are lost at prediction, if the search knows
(``target_noise``).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from dropmargin import DropoutLogisticRegressionCV

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X / 16, y, test_size=0.5, random_state=0, stratify=y)
network = MLPClassifier((200,), early_stopping=True, random_state=0).fit(X[y < 5], y[y < 5])


def features(images):
    """Return the activations of the hidden layer."""
    return np.maximum(images @ network.coefs_[0] + network.intercepts_[0], 0.0)


F, labels, F_test, labels_test = features(X[y >= 5]), y[y >= 5], features(X_test[y_test >= 5]), y_test[y_test >= 5]

# %%
# The error on complete features, and with half of the units lost at prediction, mean of three draws of the labelled
# rows:

Cs = [0.001, 0.01, 0.1, 1.0, 10.0]
sizes, n_draws = (10, 20, 40), 3
heads = {
    "dropout": DropoutLogisticRegressionCV(noises=[0.0, 0.1, 0.3, 0.5], Cs=Cs, cv=3, verbose=0),
    "dropout, target_noise=0.5": DropoutLogisticRegressionCV(
        noises=[0.0, 0.1, 0.3, 0.5], Cs=Cs, cv=3, verbose=0, target_noise=0.5
    ),
    "no dropout": LogisticRegressionCV(Cs=Cs, cv=3, max_iter=1000),
}
errors = {name: np.zeros((len(sizes), 2)) for name in heads}
for draw in range(n_draws):
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(labels))
    damaged = np.where(rng.random(F_test.shape) < 0.5, F.mean(axis=0), F_test)
    for k, size in enumerate(sizes):
        few = np.concatenate([order[labels[order] == label][:size] for label in range(5, 10)])
        for name, head in heads.items():
            head.fit(F[few], labels[few])
            errors[name][k] += [np.mean(head.predict(rows) != labels_test) / n_draws for rows in (F_test, damaged)]

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for column, (ax, title) in enumerate(zip(axes, ("complete", "half of the units lost"), strict=True)):
    for name, own in errors.items():
        ax.plot(sizes, own[:, column], marker="o", label=name)
    ax.set(title=title, xlabel="labelled rows per class", ylim=(0, None))
axes[0].set_ylabel("test error")
axes[0].legend()
plt.show()

# %%
for name, own in errors.items():
    print(f"{name:26}", *(f"{complete:.3f} {lost:.3f}  " for complete, lost in own))
