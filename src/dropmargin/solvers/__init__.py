"""Solvers: functions of an objective, a start and options that return a `Result`; `solve` is their entry point."""

from dropmargin.solvers.result import Iteration, Monitor, Options, Result, no_monitor
from dropmargin.solvers.solve import (
    SOLVERS,
    Problem,
    Solver,
    choose_solver,
    combine,
    open_outputs,
    solve,
    solve_outputs,
    with_means,
)

__all__ = [
    "SOLVERS",
    "Iteration",
    "Monitor",
    "Options",
    "Problem",
    "Result",
    "Solver",
    "choose_solver",
    "combine",
    "no_monitor",
    "open_outputs",
    "solve",
    "solve_outputs",
    "with_means",
]
