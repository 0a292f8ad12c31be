"""`TextEncoder`: documents as presence of terms, counts or tf-idf, by the vectorizers of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.utils.validation import check_is_fitted

from dropmargin.errors import ParameterError
from dropmargin.estimators.validation import check_choice
from dropmargin.io.data.frames import is_missing, table_names
from dropmargin.io.data.state import check_keys, check_strings, check_vector
from dropmargin.typing import Array

# The default of scikit-learn, words of two letters or more. It is not a parameter, because a model file must not bring
# a regular expression: one can be made to run forever.
_WORD = r"(?u)\b\w\w+\b"
#: The weightings of terms; the first is the default.
WEIGHTINGS = ("presence", "counts", "tfidf")
_ANALYZERS = ("word", "char", "char_wb")
_MAX_NGRAM = 20


class TextEncoder(TransformerMixin, BaseEstimator):
    """Encode documents as a sparse matrix with a feature per term: a word, or a sequence of words or characters.

    Parameters
    ----------
    weighting : {"presence", "counts", "tfidf"}
        The value of a term in a document: 1 if it occurs, the number of times that it occurs, or this number times the
        inverse document frequency of the term, in rows of norm 1. Dropout gains most with presence (docs/text.md).
    column : str, optional
        Column of the documents in a table. Without it the input is a sequence of strings.
    lowercase : bool
        Whether to convert documents to lower case.
    ngram_range : tuple of two int
        The smallest and the largest number of words, or of characters, of a term.
    min_df : int or float
        Terms that occur in fewer documents (int), or in a smaller share of them (float), are left out.
    max_features : int, optional
        Keep this number of terms, those that occur most often.
    stop_words : "english" or list of str, optional
        Words that are left out: the list of scikit-learn, or your own. Only for ``analyzer="word"``.
    analyzer : {"word", "char", "char_wb"}
        Terms are words, sequences of characters, or sequences of characters within words.

    Attributes
    ----------
    terms_ : list of str
        The term of each feature.
    idf_ : ndarray of shape (n_terms,), or None
        Inverse document frequencies, for tf-idf.

    See Also
    --------
    FrameEncoder : Encodes tables that have text and other columns.
    TableEncoder : Encodes tables of numbers and categories.

    Notes
    -----
    A missing document (None or NaN) is an empty document: it has none of the terms.

    Examples
    --------
    >>> from dropmargin.io.data import TextEncoder
    >>> encoder = TextEncoder().fit(["good film", "bad film"])
    >>> encoder.terms_
    ['bad', 'film', 'good']
    >>> encoder.transform(["good, good"]).toarray()
    array([[0., 0., 1.]])
    >>> TextEncoder("counts").fit(["good film"]).transform(["good, good"]).toarray()
    array([[0., 2.]])
    """

    def __init__(
        self,
        weighting: str = "presence",
        column: str | None = None,
        lowercase: bool = True,
        ngram_range: tuple[int, int] = (1, 1),
        min_df: int | float = 1,
        max_features: int | None = None,
        stop_words: str | list[str] | None = None,
        analyzer: str = "word",
    ) -> None:
        self.weighting = weighting
        self.column = column
        self.lowercase = lowercase
        self.ngram_range = ngram_range
        self.min_df = min_df
        self.max_features = max_features
        self.stop_words = stop_words
        self.analyzer = analyzer

    def fit(self, X: Any, y: Any = None) -> TextEncoder:
        """Learn the terms of documents.

        Parameters
        ----------
        X : sequence of str, or table with the column ``column``
            The documents.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : object
            The fitted encoder.
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the terms of documents and encode these; the documents are split into terms once.

        Parameters
        ----------
        X : sequence of str, or table with the column ``column``
            The documents.
        y : object, default=None
            Ignored.

        Returns
        -------
        csr_array of float64
            A row per document, a column per term.
        """
        self._check_parameters()
        documents = self._documents(X)
        vectorizer = self._vectorizer(min_df=self.min_df, max_features=self.max_features)
        try:
            counts = sparse.csr_array(vectorizer.fit_transform(documents))
        except ValueError as error:
            raise _without_terms(self.column, error) from error
        terms = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
        counts.sort_indices()  # scikit-learn has renumbered the terms
        self._set_terms(terms, TfidfTransformer().fit(counts).idf_ if self.weighting == "tfidf" else None)
        return self._weighted(counts)

    def transform(self, X: Any) -> Any:
        """Encode documents; terms that `fit` has not seen are left out.

        Parameters
        ----------
        X : sequence of str, or table with the column ``column``
            The documents.

        Returns
        -------
        csr_array of float64
            A row per document, a column per term.
        """
        check_is_fitted(self, "terms_")
        vectorizer = self._vectorizer(vocabulary=self._vocabulary)
        return self._weighted(sparse.csr_array(vectorizer.transform(self._documents(X))))

    def _weighted(self, counts: Any) -> Any:
        """Return tf-idf of counts if this is the weighting, else the counts."""
        if self.idf_ is None:
            return counts
        transformer = TfidfTransformer()
        transformer.n_features_in_, transformer.idf_ = len(self.idf_), self.idf_
        return sparse.csr_array(transformer.transform(counts))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the term of each feature.

        Parameters
        ----------
        input_features : object, default=None
            Ignored.

        Returns
        -------
        names : ndarray of str
            The terms.
        """
        check_is_fitted(self, "terms_")
        return np.array(self.terms_, dtype=object)

    def get_state(self) -> dict[str, Any]:
        """Return the fitted state for `from_state`: the parameters, the terms and their inverse document frequencies.

        Returns
        -------
        state : dict
            Plain values, lists of strings and arrays.
        """
        check_is_fitted(self, "terms_")
        return {**self.get_params(deep=False), "terms": list(self.terms_), "idf": self.idf_}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TextEncoder:
        """Return the fitted encoder with a state of `get_state`; every part is checked, an error is a ValueError.

        Parameters
        ----------
        state : dict
            A state of `get_state`.

        Returns
        -------
        encoder : object
            The fitted encoder.
        """
        names = set(cls().get_params())
        check_keys("The state of a TextEncoder", state, names | {"terms", "idf"})
        encoder = cls(**{name: state[name] for name in names})
        encoder._check_parameters()
        terms, idf = check_strings("terms", state["terms"]), state["idf"]
        if not terms or (idf is None) != (encoder.weighting != "tfidf"):
            raise ValueError("terms must not be empty, and idf must be None unless the weighting is tfidf.")
        encoder._set_terms(terms, None if idf is None else check_vector("idf", idf, len(terms)))
        return encoder

    def _check_parameters(self) -> None:
        for name, allowed in (("weighting", WEIGHTINGS), ("analyzer", _ANALYZERS)):
            check_choice(name, getattr(self, name), allowed)
        if not isinstance(self.column, str | None):
            raise ValueError(f"column must be a string or None, got {self.column!r:.40}.")
        sizes, words = self.ngram_range, self.stop_words
        are_integers = isinstance(sizes, tuple) and len(sizes) == 2 and all(type(size) is int for size in sizes)
        if not are_integers or not 1 <= sizes[0] <= sizes[1] <= _MAX_NGRAM:
            what = f"two integers, in ascending order, at most {_MAX_NGRAM}"
            raise ValueError(f"ngram_range must be {what}, got {sizes!r:.40}.")
        if words is not None and self.analyzer != "word":
            raise ParameterError(
                f"stop_words must be None with analyzer={self.analyzer!r}: its terms are not words.",
                "stop_words",
                f"these are for --analyzer word; the terms of --analyzer {self.analyzer} are not words",
            )
        if isinstance(words, list) and not all(isinstance(word, str) for word in words):
            raise ValueError("stop_words must be 'english', a list of strings or None, got a list of other values.")
        # The other parameters have the checks of scikit-learn.
        self._vectorizer(min_df=self.min_df, max_features=self.max_features)._validate_params()

    def _set_terms(self, terms: list[str], idf: Array | None) -> None:
        self.terms_, self.idf_ = terms, idf
        self._vocabulary = {term: j for j, term in enumerate(terms)}

    def _vectorizer(self, **more: Any) -> Any:
        own = {name: getattr(self, name) for name in ("lowercase", "ngram_range", "analyzer", "stop_words")}
        own["token_pattern"] = _WORD if self.analyzer == "word" else None
        return CountVectorizer(binary=self.weighting == "presence", dtype=np.float64, **own, **more)

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
        given = X.to_pylist() if hasattr(X, "to_pylist") else X
        documents = ["" if is_missing(document) else document for document in given]
        for i, document in enumerate(documents):
            if not isinstance(document, str):
                raise ValueError(f"Document {i} must be a string, got {type(document).__name__}.")
        return documents

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = True
        return tags


def _without_terms(column: str | None, error: ValueError) -> ValueError:
    """Return the error for documents without terms, which scikit-learn describes in its own words."""
    where = "" if column is None else f" of column {column!r}"
    if "empty vocabulary" in str(error):
        return ValueError(f"The documents{where} have no terms: they are empty, or have only stop words.")
    if "min_df" in str(error):
        reason = f"no term of the documents{where} occurs in so many of them"
        return ParameterError(f"min_df must be smaller: {reason}.", "min_df", reason)
    return error


def _is_sequence(X: Any) -> bool:
    """Return whether ``X`` is a sequence of documents, not a table."""
    is_column = type(X).__name__ in ("Series", "ChunkedArray")
    return is_column or isinstance(X, list | tuple) or getattr(X, "ndim", None) == 1
