"""Questions to a cluster that end: with an answer, or with an error that says what happened and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
from distributed import CancelledError, Client, Future, KilledWorker, get_client

# What the connection to a cluster may raise by itself; after one of these it is asked again, so many times.
_LOST = (CancelledError, OSError)
_RETRIES = 3
# Dask warns of messages of 10 MB; ours are as large as the coefficients on purpose.
_QUIETLY_SENT = 5e6


class ClusterError(RuntimeError):
    """The cluster could not do what a fit asked of it."""


def find_client(client: Client | None) -> Client:
    """Return the client to use: the given one, or the present one."""
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
            "asynchronous code from another thread: await asyncio.to_thread(model.fit, X, y)."
        )
    if client.status != "running":
        raise ClusterError(f"client is {client.status}: connect a new one, dask.distributed.Client(address).")
    return client


class Cluster:
    """A client, with a time limit on every wait.

    Parameters
    ----------
    client : Client
    timeout : float or None
        The most seconds without any task being finished.
    """

    def __init__(self, client: Client, timeout: float | None) -> None:
        self.client = client
        self.timeout = timeout

    def start(
        self, graph: dict[str, Any], keys: Sequence[str], homes: dict[str, str | None], n_bytes: int
    ) -> list[Future]:
        """Send tasks, about ``n_bytes`` in one message, and return the futures of ``keys``.

        ``homes`` are the workers where they would best run; they run elsewhere if need be.
        """
        wishes = {key: [home] if (home := homes.get(key)) is not None else [] for key in graph}
        with ExitStack() as stack:
            stack.enter_context(self.explained())
            stack.enter_context(dask.annotate(workers=wishes.get, allow_other_workers=True))
            if n_bytes > _QUIETLY_SENT:
                stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}))
            return self.client.get(graph, list(keys), sync=False)

    def fetch(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results, in this order."""
        unique = list({future.key: future for future in futures}.values())
        for is_last in [False] * _RETRIES + [True]:
            try:
                found = dict(zip([future.key for future in unique], self._gather(unique), strict=True))
                return [found[future.key] for future in futures]
            except _LOST as error:
                if any(future.status == "error" for future in unique):  # raised by the task itself
                    raise
                if is_last or self.client.status != "running" or any(future.cancelled() for future in unique):
                    raise ClusterError(self._lost(error)) from error
        raise AssertionError

    def _gather(self, futures: list[Future]) -> list[Any]:
        n_done = -1
        while True:
            try:
                return self.client.sync(_gather, self.client, futures, callback_timeout=self.timeout)
            except KilledWorker as error:
                raise ClusterError(
                    f"A task killed its worker {error.allowed_failures + 1} times, most often by taking more memory "
                    "than there is: use smaller partitions, or workers with more memory. The workers' logs say more."
                ) from error
            except TimeoutError as error:
                if any(future.status == "error" for future in futures):
                    raise
                before, n_done = n_done, sum(future.done() for future in futures)
                if n_done <= before or n_done == 0:
                    raise ClusterError(self._late()) from error

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what the connection raises into a `ClusterError`."""
        if self.client.status != "running":
            raise ClusterError(self._lost(None))
        try:
            yield
        except _LOST as error:
            raise ClusterError(self._lost(error)) from error

    def _late(self) -> str:
        workers = self._count_workers()
        there = "there are no workers" if workers == 0 else f"workers: {'unknown' if workers is None else workers}"
        return (
            f"The cluster has finished nothing for timeout={self.timeout:g} seconds ({there}). Start workers, or raise "
            "timeout if a worker takes that long to load a partition, or for one pass over all that it has."
        )

    def _lost(self, error: BaseException | None) -> str:
        if self.client.status != "running":
            return "The connection to the Dask scheduler is lost. Connect a new client and fit again."
        return (
            "Data that the fit needs were lost with a worker, and Dask does not know how to make them again: they "
            "were put there by Client.scatter, or cancelled. Have the workers load or make the partitions themselves "
            f"(dask.delayed, dask.array, dask.dataframe), which Dask can repeat. It said: {error}"
        )

    def _count_workers(self) -> int | None:
        try:
            return len(self.client.sync(_workers, self.client, callback_timeout=5))
        except Exception:  # only to say more in an error
            return None


async def _gather(client: Client, futures: list[Future]) -> list[Any]:
    return await client.gather(futures, asynchronous=True)


async def _workers(client: Client) -> Any:
    return await client.nthreads()
