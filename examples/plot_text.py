"""
Text in ten lines
=================

Which library does a docstring come from? The documents are the docstrings of NumPy, SciPy and scikit-learn
themselves: a few hundred short texts with thousands of words, the case in which dropout training gains most.
"""

import inspect

import matplotlib.pyplot as plt
import numpy as np
import scipy.signal
import scipy.stats
import sklearn.linear_model
import sklearn.metrics
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from dropmargin import DropoutSVC

# %%
# The first sentences of each docstring, without the name of the library.
MODULES = {
    "numpy": [np, np.linalg],
    "scipy": [scipy.stats, scipy.signal],
    "sklearn": [sklearn.metrics, sklearn.linear_model],
}
texts, labels = [], []
for library, modules in MODULES.items():
    for module in modules:
        for _, thing in sorted(inspect.getmembers(module, callable)):
            text = inspect.getdoc(thing)
            if text and str(getattr(thing, "__module__", "")).startswith(library):
                texts.append(text[:300].replace(library, ""))
                labels.append(library)
print(f"{len(texts)} documents")

# %%
# Words as presence or absence, and the two classifiers at several values of ``C``.
Cs = [0.01, 0.1, 1.0, 10.0]
errors = {}
for name, make in {
    "DropoutSVC, rate 0.5": lambda C: DropoutSVC(noise=0.5, C=C),
    "LinearSVC, hinge": lambda C: LinearSVC(loss="hinge", C=C, max_iter=20_000),
}.items():
    pipelines = [make_pipeline(CountVectorizer(binary=True), make(C)) for C in Cs]
    errors[name] = [1.0 - cross_val_score(pipeline, texts, labels).mean() for pipeline in pipelines]

fig, ax = plt.subplots()
for name, values in errors.items():
    ax.semilogx(Cs, values, "o-", label=name)
ax.set(xlabel="C", ylabel="cross-validated error")
ax.legend()
plt.show()
