"""The breast cancer table of scikit-learn, standardised."""

from benchopt import BaseDataset
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale


class Dataset(BaseDataset):
    name = "cancer"
    requirements = ["pip::scikit-learn"]

    def get_data(self):
        X, y = load_breast_cancer(return_X_y=True)
        return {"X": scale(X), "y": 2.0 * y - 1.0}
