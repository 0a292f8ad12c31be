"""Our estimators and their peers in one process, alternating: ``make bench`` or ``python -m benchmarks``."""
