"""Requests to a cluster that always end: with a result, or with an error that says what happened and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import dask
from distributed import CancelledError, Client, Future, KilledWorker, get_client

# Errors of the connection to a cluster. A request is repeated this many times after one of them.
_LOST = (CancelledError, OSError)
_RETRIES = 3


class ClusterError(RuntimeError):
    """The cluster could not complete a fit: workers, data or the connection were lost, or a time limit exceeded."""


def find_client(client: Client | None) -> Client:
    """Return the client to use: the given one, or the current one."""
    if client is None:
        try:
            client = get_client()
        except ValueError:
            raise ValueError(
                "There is no Dask client: start one, client = dask.distributed.Client(...), or pass client=."
            ) from None
    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client or None, got {type(client).__name__}.")
    if client.asynchronous:
        raise ValueError(
            "client is asynchronous, and a fit waits for its results: use a Client without asynchronous=True, in "
            "asynchronous code from another thread: await asyncio.to_thread(dropmargin.dask.fit, model, X, y)."
        )
    if client.status != "running":
        raise ClusterError(f"client is {client.status}: connect a new one, dask.distributed.Client(address).")
    return client


class Cluster:
    """A client, the longest time in seconds without a finished task in every wait, and all futures of a fit."""

    def __init__(self, client: Client, timeout: float | None, parts: Sequence[Future]) -> None:
        self.client, self.timeout = client, timeout
        self._started: WeakSet[Future] = WeakSet(parts)

    def start(self, graph: dict[str, Any], keys: list[str], workers: Mapping[str, list[str]]) -> list[Future]:
        """Send tasks in one message, and return the futures of ``keys``.

        ``workers`` are the preferred workers of the tasks; Dask may run them on others.
        """
        with (
            self.explained(),
            dask.annotate(workers=lambda key: workers.get(key, []), allow_other_workers=True),
            dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}),
        ):
            futures = self.client.get(graph, keys, sync=False)
        self._started.update(futures)
        return futures

    def release(self) -> None:
        """Release partitions and all results of the tasks that were sent; a traceback may still refer to them."""
        for future in list(self._started):
            future.release()

    def fetch(self, futures: list[Future]) -> list[Any]:
        """Return the results, in this order."""
        n_done, n_lost = 0, 0
        while True:
            try:
                return self.client.sync(self.client.gather, futures, callback_timeout=self.timeout)
            except KilledWorker as error:
                raise ClusterError(
                    f"A task killed its worker {error.allowed_failures + 1} times, most often by taking more memory "
                    "than there is: use smaller partitions, or workers with more memory. The workers' logs say more."
                ) from error
            except (TimeoutError, *_LOST) as error:
                if any(future.status == "error" for future in futures):  # raised by the task itself
                    raise
                if isinstance(error, TimeoutError):
                    before, n_done = n_done, sum(future.done() for future in futures)
                    if n_done <= before:
                        raise ClusterError(self._timed_out()) from error
                    continue
                n_lost += 1
                is_over = n_lost > _RETRIES or self.client.status != "running"
                if is_over or any(future.cancelled() for future in futures):
                    for future in self._started:
                        if future.status == "error":  # such as a task that the scheduler cannot read
                            future.result()
                    raise ClusterError(self._lost(error)) from error

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn the errors of the connection into a `ClusterError`."""
        if self.client.status != "running":
            raise ClusterError(self._lost(None))
        try:
            yield
        except _LOST as error:
            raise ClusterError(self._lost(error)) from error

    def _timed_out(self) -> str:
        try:
            n_workers = str(len(self.client.sync(self.client.nthreads, callback_timeout=5)) or "none")
        except Exception:  # only to say more in an error
            n_workers = "unknown"
        return (
            f"The cluster has finished no task for timeout={self.timeout:g} seconds (workers: {n_workers}). Start "
            "workers, or raise timeout if a worker takes that long to load a partition, or for one pass over all its "
            "partitions."
        )

    def _lost(self, error: BaseException | None) -> str:
        if self.client.status != "running":
            return "The connection to the Dask scheduler is lost. Connect a new client and fit again."
        return (
            "Data that the fit needs were lost with a worker, and Dask cannot compute them again: they were sent by "
            "Client.scatter, or cancelled. Let the workers load or compute the partitions themselves (dask.delayed, "
            f"dask.array, dask.dataframe), which Dask can repeat. The error was: {error}"
        )
