"""`TextEncoder`: documents as counts of words or tf-idf, by the vectorizers of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

from dropmargin.io.data.frames import is_missing, table_names
from dropmargin.io.data.state import check_flag, check_keys, check_string, check_strings, check_vector, check_whole
from dropmargin.typing import Array

# The default of scikit-learn, words of two letters or more. It is not a parameter, because a model file must not bring
# a regular expression: one can be made to run forever.
_WORD = r"(?u)\b\w\w+\b"
_WEIGHTINGS = ("tfidf", "counts")
_MAX_NGRAM = 20


class TextEncoder(TransformerMixin, BaseEstimator):
    """Encode documents as a sparse matrix with a column per word, or per sequence of words.

    Parameters
    ----------
    weighting : {"tfidf", "counts"}
        `sklearn.feature_extraction.text.TfidfVectorizer` or `CountVectorizer`.
    column : str, optional
        Column of the documents in a table. Without it the input is a sequence of strings.
    lowercase, ngram_range, min_df, max_features, binary
        As in scikit-learn.

    Attributes
    ----------
    terms_ : list of str
        The word or words of each column.
    idf_ : ndarray of shape (n_terms,), or None
        Inverse document frequencies, for tf-idf.

    See Also
    --------
    TableEncoder : Encodes tables of numbers and categories.

    Examples
    --------
    >>> from dropmargin.io.data import TextEncoder
    >>> encoder = TextEncoder("counts").fit(["good film", "bad film"])
    >>> encoder.terms_
    ['bad', 'film', 'good']
    >>> encoder.transform(["good, good"]).toarray()
    array([[0., 0., 2.]])
    """

    def __init__(
        self,
        weighting: str = "tfidf",
        column: str | None = None,
        lowercase: bool = True,
        ngram_range: tuple[int, int] = (1, 1),
        min_df: int | float = 1,
        max_features: int | None = None,
        binary: bool = False,
    ) -> None:
        self.weighting = weighting
        self.column = column
        self.lowercase = lowercase
        self.ngram_range = ngram_range
        self.min_df = min_df
        self.max_features = max_features
        self.binary = binary

    def fit(self, X: Any, y: Any = None) -> TextEncoder:
        """Learn the words of documents.

        Parameters
        ----------
        X : sequence of str, or table with the column ``column``
        y : ignored

        Returns
        -------
        TextEncoder
        """
        self._check_parameters()
        vectorizer = self._vectorizer(min_df=self.min_df, max_features=self.max_features)
        vectorizer.fit(self._documents(X))
        terms = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
        self._set_terms(terms, vectorizer.idf_ if self.weighting == "tfidf" else None)
        return self

    def transform(self, X: Any) -> Any:
        """Encode documents; words that `fit` has not seen are left out.

        Parameters
        ----------
        X : sequence of str, or table with the column ``column``

        Returns
        -------
        csr_matrix of float64
        """
        check_is_fitted(self, "terms_")
        vectorizer = self._vectorizer(vocabulary=self._vocabulary)
        if self.idf_ is not None:
            vectorizer.idf_ = self.idf_
        return vectorizer.transform(self._documents(X))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the word or words of each column."""
        check_is_fitted(self, "terms_")
        return np.array(self.terms_, dtype=object)

    def get_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the fitted state for `from_state`: values for JSON, and arrays."""
        check_is_fitted(self, "terms_")
        facts = dict(self.get_params(deep=False), ngram_range=list(self.ngram_range), terms=list(self.terms_))
        return facts, {} if self.idf_ is None else {"idf": np.array(self.idf_)}

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> TextEncoder:
        """Return the fitted encoder with a state of `get_state`; every part is checked, an error is a ValueError."""
        names = {"weighting", "column", "lowercase", "ngram_range", "min_df", "max_features", "binary"}
        check_keys("The state of a TextEncoder", facts, names | {"terms"})
        parameters = {name: facts[name] for name in names}
        ngram_range = parameters["ngram_range"]
        if not isinstance(ngram_range, list):
            raise ValueError("ngram_range must be a list of two numbers.")
        encoder = cls(**{**parameters, "ngram_range": tuple(ngram_range)})
        encoder._check_parameters()
        terms = check_strings("terms", facts["terms"])
        if not terms:
            raise ValueError("terms must not be empty.")
        is_tfidf = encoder.weighting == "tfidf"
        check_keys("The arrays of a TextEncoder", arrays, {"idf"} if is_tfidf else set())
        encoder._set_terms(terms, check_vector("idf", arrays["idf"], len(terms)) if is_tfidf else None)
        return encoder

    def _check_parameters(self) -> None:
        if self.weighting not in _WEIGHTINGS or not isinstance(self.weighting, str):
            raise ValueError(f"weighting must be one of {list(_WEIGHTINGS)}, got {self.weighting!r:.40}.")
        if self.column is not None:
            check_string("column", self.column)
        check_flag("lowercase", self.lowercase)
        check_flag("binary", self.binary)
        if not isinstance(self.ngram_range, tuple) or len(self.ngram_range) != 2:
            raise ValueError(f"ngram_range must be two numbers, got {self.ngram_range!r:.40}.")
        low, high = (check_whole("ngram_range", n, 1) for n in self.ngram_range)
        if not low <= high <= _MAX_NGRAM:
            raise ValueError(f"ngram_range must go up, to at most {_MAX_NGRAM}, got {self.ngram_range!r}.")
        if isinstance(self.min_df, float):
            if not 0.0 <= self.min_df <= 1.0:
                raise ValueError(f"min_df must be a share in [0, 1] or a number of documents, got {self.min_df!r}.")
        else:
            check_whole("min_df", self.min_df, 1)
        if self.max_features is not None:
            check_whole("max_features", self.max_features, 1)

    def _set_terms(self, terms: list[str], idf: Array | None) -> None:
        self.terms_, self.idf_ = terms, idf
        self._vocabulary = {term: j for j, term in enumerate(terms)}

    def _vectorizer(self, **more: Any) -> Any:
        make = TfidfVectorizer if self.weighting == "tfidf" else CountVectorizer
        return make(
            lowercase=self.lowercase,
            ngram_range=self.ngram_range,
            binary=self.binary,
            token_pattern=_WORD,
            dtype=np.float64,
            **more,
        )

    def _documents(self, X: Any) -> list[str]:
        names = None if _is_sequence(X) else table_names(X)
        if names is not None:
            if self.column is None:
                raise ValueError(f"X is a table ({type(X).__name__}): set column to the name of the documents' column.")
            if self.column not in names:
                raise ValueError(f"X has no column {self.column!r}, but {names[:20]}.")
            X = X[self.column]
        elif isinstance(X, str) or not _is_sequence(X):
            raise ValueError(f"Documents must be a sequence of strings, got {type(X).__name__}.")
        documents = []
        for i, document in enumerate(X.to_pylist() if hasattr(X, "to_pylist") else X):
            if is_missing(document):
                document = ""
            if not isinstance(document, str):
                raise ValueError(f"Document {i} must be a string, got {type(document).__name__}.")
            documents.append(document)
        return documents

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = True
        return tags


def _is_sequence(X: Any) -> bool:
    """Return whether ``X`` is a sequence of documents, not a table."""
    return (
        isinstance(X, list | tuple) or getattr(X, "ndim", None) == 1 or type(X).__name__ in ("Series", "ChunkedArray")
    )
