"""
A form that is half empty
=========================

The breast cancer data have thirty measurements on three pages: means, standard errors and worst values. At prediction
whole pages are missing. ``DropoutNoise(groups=...)`` drops whole pages in training, too.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dropmargin import DropoutLogisticRegression, DropoutNoise

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
pages = {"means": "mean *", "errors": "* error", "worst": "worst *"}
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
scaler = StandardScaler().set_output(transform="pandas").fit(X_train)
train, test = scaler.transform(X_train), scaler.transform(X_test)

models = {
    "LogisticRegression, mean imputation": make_pipeline(SimpleImputer(), LogisticRegression()),
    "DropoutLogisticRegression": DropoutLogisticRegression(noise=0.1, missing="rescale"),
    "DropoutLogisticRegression, by page": DropoutLogisticRegression(
        noise=DropoutNoise(0.3, groups=pages), missing="rescale"
    ),
}
columns = {"means": "mean ", "errors": " error", "worst": "worst "}
cases = {"complete": []} | {f"no {page}" if page != "worst" else "no worst values": [page] for page in pages}
cases["means only"] = ["errors", "worst"]

# %%
# The test rows with some pages missing, for each model.
errors = np.empty((len(models), len(cases)))
for i, model in enumerate(models.values()):
    model.fit(train, y_train)
    for j, lost in enumerate(cases.values()):
        rows = test.copy()
        rows.loc[:, [name for name in rows if any(columns[page] in name for page in lost)]] = np.nan
        errors[i, j] = 1.0 - model.score(rows, y_test)

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for i, name in enumerate(models):
    ax.bar(np.arange(len(cases)) + 0.27 * (i - 1), errors[i], 0.25, label=name)
ax.set(xticks=range(len(cases)), xticklabels=list(cases), ylabel="test error")
ax.legend()
plt.show()
