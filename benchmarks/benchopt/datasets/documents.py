"""Synthetic documents: the words by Zipf's law, the labels by the sum of their weights, with noise."""

import numpy as np
from benchopt import BaseDataset
from scipy import sparse


class Dataset(BaseDataset):
    name = "documents"
    requirements = ["pip::scipy"]
    parameters = {"n_rows, n_features": [(2_000, 20_000), (25_000, 150_000)]}
    per_row = 130

    def get_data(self):
        rng = np.random.default_rng(0)
        shares = 1.0 / (np.arange(self.n_features) + 10.0)
        words = rng.choice(self.n_features, self.n_rows * self.per_row, p=shares / shares.sum()).astype(np.int32)
        starts = np.arange(0, len(words) + 1, self.per_row, dtype=np.int32)
        X = sparse.csr_matrix((np.ones(len(words)), words, starts), shape=(self.n_rows, self.n_features))
        X.sum_duplicates()
        score = X @ (rng.standard_normal(self.n_features) * (rng.uniform(size=self.n_features) < 0.1))
        noisy = score + np.std(score) * rng.standard_normal(self.n_rows)
        return {"X": X, "y": np.where(noisy > np.median(noisy), 1.0, -1.0)}
