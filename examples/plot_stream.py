"""
A stream, each row read once
============================

`partial_fit` learns from batches and keeps none of them. The documents are made up and hashed, so no vocabulary is
kept either, and memory does not grow.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from dropmargin import DropoutLogisticRegression

SUBJECTS = {
    "sport": ["goal", "match", "team", "coach", "league", "score", "player", "cup"],
    "law": ["court", "judge", "trial", "appeal", "ruling", "statute", "counsel", "score"],
}
COMMON = ["the", "a", "of", "and", "in", "to", "was", "for", "on", "with"]

rng = np.random.default_rng(0)
hashing = HashingVectorizer(n_features=2**16, alternate_sign=False)
model = DropoutLogisticRegression(noise=0.3)
errors = []
for number in range(20):
    labels = rng.choice(list(SUBJECTS), 50).tolist()
    texts = [" ".join([*rng.choice(COMMON, 12), *rng.choice(SUBJECTS[label], 1)]) for label in labels]
    X = hashing.transform(texts)
    if number:
        errors.append(1.0 - model.score(X, labels))  # before the model learns from the batch
    model.partial_fit(X, labels, classes=list(SUBJECTS))

# %%
fig, ax = plt.subplots()
ax.plot(range(2, 21), errors, "o-")
ax.set(xlabel="batch of 50 documents", ylabel="error before learning from it")
plt.show()
