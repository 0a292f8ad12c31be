"""
How sure is a prediction?
=========================

`predict_stability` returns the probability that a label is still predicted when features are lost. It finds the
predictions that hang on few features.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dropmargin import DropoutSVC

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
model = DropoutSVC(noise=0.1).fit(X_train, y_train)
stability = model.predict_stability(X_test, noise=0.5)

# %%
# The most and the least stable images, if half of their pixels are lost.
order = np.argsort(-stability)
fig, axes = plt.subplots(2, 6, figsize=(7, 3), layout="constrained")
for ax, i in zip(axes.ravel(), [*order[:6], *order[-6:]], strict=True):
    ax.imshow(X_test[i].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{model.predict(X_test[[i]])[0]}: {stability[i]:.2f}")
    ax.axis("off")
plt.show()

# %%
# Stable labels are right more often, also on complete images.
edges = np.quantile(stability, np.linspace(0.0, 1.0, 6))
is_right = model.predict(X_test) == y_test
bins = np.clip(np.searchsorted(edges, stability, side="right") - 1, 0, 4)
fig, ax = plt.subplots()
ax.bar(range(5), [1.0 - is_right[bins == b].mean() for b in range(5)])
ax.set(xticks=range(5), xticklabels=["least stable fifth", "", "", "", "most stable fifth"], ylabel="test error")
plt.show()
