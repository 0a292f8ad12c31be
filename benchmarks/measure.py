"""Time and memory of a fit, measured."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np


def timed_fit(make: Callable[[], Any], X: Any, y: Any) -> tuple[float, Any]:
    """Return the seconds of a fit, and the fitted model."""
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.perf_counter()
        model.fit(X, y)
        return time.perf_counter() - begin, model


def alternate(
    makers: dict[str, Callable[[], Any]], X: Any, y: Any, repeats: int, budget: float
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Fit every model in turn, ``repeats`` times round; a model that has used up its budget of seconds drops out."""
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    fitted: dict[str, Any] = {}
    for _ in range(repeats):
        for name, make in makers.items():
            if sum(seconds[name]) < budget:
                spent, fitted[name] = timed_fit(make, X, y)
                seconds[name].append(spent)
    return seconds, fitted


def prediction_seconds(fitted: dict[str, Any], X: Any, repeats: int = 15) -> dict[str, float]:
    """Return the best time of `decision_function` of each model that has one, in turn."""
    best = {name: float("inf") for name, model in fitted.items() if hasattr(model, "decision_function")}
    for _ in range(repeats):
        for name in best:
            begin = time.perf_counter()
            fitted[name].decision_function(X)
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def peak_extra_memory(make: Callable[[], Any], X: Any, y: Any) -> int | None:
    """Return the most resident memory, in bytes, that a fit adds to a fresh process that holds the data."""
    if not os.path.exists("/proc/self/statm"):
        return None
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_watch, args=(make, X, y, sender))
    process.start()
    value = receiver.recv()
    process.join()
    return int(value)


def _watch(make: Callable[[], Any], X: Any, y: Any, sender: Any) -> None:
    # A small fit first, so that imports and thread pools are not counted.
    some = np.unique(np.concatenate([np.flatnonzero(y == label)[:20] for label in np.unique(y)]))
    timed_fit(make, X[some], y[some])
    for array in (X.data, X.indices, X.indptr) if hasattr(X, "indptr") else (X,):
        array.sum()  # make it resident
    before = _resident()
    peak = [before]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.0005):
            peak[0] = max(peak[0], _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    timed_fit(make, X, y)
    done.set()
    watcher.join()
    sender.send(peak[0] - before)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
