"""
A stress test of your own model
===============================

`deletion_curve` measures any classifier of scikit-learn on rows whose features are deleted: single entries, or whole
columns, as when a sensor dies.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dropmargin import DeletionCurveDisplay, DropoutLogisticRegression

X, y = load_wine(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
models = {
    "DropoutLogisticRegression": make_pipeline(
        StandardScaler(), DropoutLogisticRegression(noise=0.2, missing="rescale")
    ),
    "LogisticRegression, mean imputation": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
}
for model in models.values():
    model.fit(X_train, y_train)

# %%
for strategy in ("entries", "columns"):
    DeletionCurveDisplay.from_estimators(
        models, X_test, y_test, strategy=strategy, fill=np.nan, levels=[0.0, 0.2, 0.4, 0.6, 0.8], random_state=0
    )
    plt.title(f"deleted: {strategy}")
    plt.show()
