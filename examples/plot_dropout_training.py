"""
What dropout training is, in three plots
========================================

Each training row stands for infinitely many copies of itself, in each of which some features are lost. Nothing is
sampled in training: the loss is computed from the mean and the variance of the scores of these copies.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from dropmargin import DropoutNoise, DropoutSVC

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
plain = DropoutSVC(noise=None).fit(X, y)
dropout = DropoutSVC(noise=0.3).fit(X, y)

# %%
# The scores of one row when each feature is lost with probability 0.3. The label changes where the score passes zero.
# The support vector machine without noise relies on large coefficients that cancel, so its scores vary more.
row = np.repeat(X[y == 1][:1], 20_000, axis=0)
copies = DropoutNoise(0.3, reference="zero").sample(row, random_state=0)  # zero is the mean of a scaled feature
fig, ax = plt.subplots(layout="constrained")
for model, name in [(plain, "without noise"), (dropout, "dropout training")]:
    scores = model.decision_function(copies)
    ax.hist(scores, bins=80, density=True, alpha=0.6, label=f"{name}: label changes in {(scores < 0).mean():.1%}")
ax.axvline(0.0, color="grey", linewidth=1)
ax.set(xlabel="score of a copy with lost features", ylabel="density")
ax.legend()
plt.show()

# %%
# The loss that dropout training minimises: an upper bound of the expected hinge loss over all copies, in closed form.
# Without variance it is the hinge loss; the more the scores vary, the wider is the margin that a row needs.
margin = np.linspace(-1.0, 3.0, 201)
fig, ax = plt.subplots(layout="constrained")
for variance in (0.0, 0.25, 1.0, 4.0):
    z = 1.0 - margin
    ax.plot(margin, (z + np.sqrt(z**2 + variance)) / 2.0, label=f"variance of the score {variance:g}")
ax.set(xlabel="margin, y times the mean score", ylabel="loss")
ax.legend()
plt.show()

# %%
# Dropout training keeps the coefficients small and even: the loss of one feature changes the score less.
fig, ax = plt.subplots(layout="constrained")
for model, name in [(plain, "without noise"), (dropout, "dropout training")]:
    sizes = np.sort(np.abs(model.coef_[0]))[::-1]
    ax.plot(range(1, 31), sizes, "o-", label=name)
ax.set(xlabel="feature, by the size of its coefficient", ylabel="size of the coefficient")
ax.legend()
plt.show()
