"""Learning from a stream of texts, each seen once.

Usage: python examples/stream.py

Makes up messages about two subjects, hashes their words, hands them to `partial_fit` a batch at a time, and prints the
error on the batch before it is learnt from. No word list is kept and no text is kept: memory does not grow.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from dropmargin import DropoutLogisticRegression

SUBJECTS = {
    "sport": ["goal", "match", "team", "coach", "league", "score", "player", "cup"],
    "law": ["court", "judge", "trial", "appeal", "ruling", "statute", "counsel", "score"],
}
COMMON = ["the", "a", "of", "and", "in", "to", "was", "for", "on", "with"]


def messages(n_batches: int, size: int, seed: int = 0) -> Iterator[tuple[list[str], list[str]]]:
    """Yield batches of texts and their labels."""
    rng = np.random.default_rng(seed)
    for _ in range(n_batches):
        labels = rng.choice(list(SUBJECTS), size).tolist()
        texts = [" ".join([*rng.choice(COMMON, 12), *rng.choice(SUBJECTS[label], 1)]) for label in labels]
        yield texts, labels


def main() -> None:
    """Learn from ten batches."""
    hashing = HashingVectorizer(n_features=2**16, alternate_sign=False)
    model = DropoutLogisticRegression(noise=0.3, C=1.0)
    for number, (texts, labels) in enumerate(messages(10, 500), 1):
        X = hashing.transform(texts)
        if number > 1:
            print(f"batch {number:2d}: error before learning from it {1.0 - model.score(X, labels):.3f}")
        model.partial_fit(X, labels, classes=list(SUBJECTS))


if __name__ == "__main__":
    main()
