"""
Twenty lines: features that are missing at prediction
=====================================================

A classifier of handwritten digits meets images with missing pixels. `LinearSVC` with mean imputation relies on single
pixels; `DropoutSVC` is trained as if any pixel might be missing.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from dropmargin import DeletionCurveDisplay, DropoutSVC

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
models = {
    "DropoutSVC": DropoutSVC(noise=0.1, missing="conditional").fit(X_train, y_train),
    "LinearSVC, mean imputation": make_pipeline(SimpleImputer(), LinearSVC()).fit(X_train, y_train),
}
DeletionCurveDisplay.from_estimators(models, X_test, y_test, fill=np.nan, random_state=0)
plt.show()
