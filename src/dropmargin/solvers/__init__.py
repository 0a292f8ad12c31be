"""Solvers: functions of an objective, a start and options that return a `Result`; `solve` is their entry point."""

from dropmargin.solvers.result import Iteration, Monitor, Options, Result, combine, no_monitor
from dropmargin.solvers.solve import (
    SOLVERS,
    Features,
    Problem,
    Solver,
    choose_solver,
    is_joint,
    make_objective,
    prepare,
    solve,
    solve_outputs,
    with_means,
)

__all__ = [
    "SOLVERS",
    "Features",
    "Iteration",
    "Monitor",
    "Options",
    "Problem",
    "Result",
    "Solver",
    "choose_solver",
    "combine",
    "is_joint",
    "make_objective",
    "no_monitor",
    "prepare",
    "solve",
    "solve_outputs",
    "with_means",
]
