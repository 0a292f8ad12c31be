"""Scores by noise and ``C``, of a search or of a path, with the noises sorted by kind and level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.model_selection import NoisePath
from dropmargin.model_selection.base import MarginalisedModelCV, default_scoring
from dropmargin.model_selection.grid import noise_level
from dropmargin.noise import Noise
from dropmargin.plotting.display import last_step, metric_name
from dropmargin.typing import Array

#: The name of a grid without noise among the kinds of noise.
NO_NOISE = "no noise"


@dataclass(frozen=True, eq=False)
class NoiseKind:
    """The noises of one kind, from the weakest to the strongest; no noise is level 0 of every kind that has levels."""

    name: str  # such as "dropout"
    label: str | None  # of the axis of levels, such as "dropout rate"; None for a noise without levels, such as Poisson
    indices: Array  # of these noises in the grid
    levels: Array  # NaN for a noise without levels


@dataclass(frozen=True, eq=False)
class ScoreGrid:
    """The scores of a grid."""

    noises: tuple[Noise | None, ...]
    Cs: Array
    scores: Array  # (n_folds, n_noises, n_Cs)
    metric: str = "accuracy"
    chosen: tuple[int, int] | None = None  # indices of noise and C
    refined: Array | None = None  # whether each point was solved to the full tolerance; None if all were

    @classmethod
    def of_estimator(cls, estimator: Any) -> ScoreGrid:
        """Return the grid of a fitted search, or of a path, whose scores are accuracies."""
        if isinstance(estimator, NoisePath):
            return cls(estimator.noises, estimator.Cs, estimator.scores[None])
        search = last_step(estimator)
        if isinstance(search, type) or not isinstance(search, MarginalisedModelCV):
            raise TypeError(
                "The estimator must be one with CV in its name, such as DropoutSVCCV or DropoutRidgeCV, which have "
                f"scores by noise and C; got {search!r}."
            )
        check_is_fitted(search, "scores_")
        metric = metric_name(search.scoring, default_scoring(search))
        return cls(search.noises_, search.Cs_, search.scores_, metric, search.best_index_, search.refined_)

    @property
    def mean(self) -> Array:
        return self.scores.mean(axis=0)

    @property
    def standard_error(self) -> Array | None:
        """The standard error of each mean over the folds; ``None`` for one fold."""
        n_folds = len(self.scores)
        return None if n_folds == 1 else self.scores.std(axis=0, ddof=1) / np.sqrt(n_folds)

    def best_columns(self) -> Array:
        """Return the index of the best ``C`` of each noise, the smallest one in a tie."""
        return np.where(np.isnan(self.mean), -np.inf, self.mean).argmax(axis=1)

    def kinds(self) -> list[NoiseKind]:
        """Return the noises sorted by kind, in the order in which the kinds first appear."""
        free: list[int] = []
        members: dict[type[Noise], list[int]] = {}
        for index, noise in enumerate(self.noises):
            if noise is None or noise.variance().is_zero:
                free.append(index)
            else:
                members.setdefault(type(noise), []).append(index)
        kinds = [self._kind(noise, indices, free) for noise, indices in members.items()]
        if free and all(kind.label is None for kind in kinds):
            kinds.insert(0, NoiseKind(NO_NOISE, None, np.array(free), np.zeros(len(free))))
        return kinds

    def _kind(self, noise: type[Noise], indices: list[int], free: list[int]) -> NoiseKind:
        name = noise.__name__.removesuffix("Noise")
        name = "dropout" if name == "Dropout" else name
        members = [own for own in (self.noises[index] for index in indices) if own is not None]
        parameter = members[0].level_name
        if parameter is None:
            return NoiseKind(name, None, np.array(indices), np.full(len(indices), np.nan))
        per_feature = any(np.ndim(own.level) for own in members)
        label = f"{'mean ' if per_feature else ''}{name} {parameter}"
        indices = free + indices
        levels = np.array([0.0 if index in free else noise_level(self.noises[index]) for index in indices])
        order = np.argsort(levels, kind="stable")
        return NoiseKind(name, label, np.array(indices)[order], levels[order])

    def describe_chosen(self) -> str:
        """Return the chosen point, such as ``"dropout rate 0.5, C = 1"``."""
        assert self.chosen is not None
        index, column = self.chosen
        kind = next(kind for kind in self.kinds() if index in kind.indices)
        level = kind.levels[list(kind.indices).index(index)]
        noise = NO_NOISE if level == 0.0 else kind.name if kind.label is None else f"{kind.label} {level:.3g}"
        return f"{noise}, C = {self.Cs[column]:.3g}"
