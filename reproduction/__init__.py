"""The experiments of *Dropout Training for Support Vector Machines* (AAAI 2014), compared with the published numbers.

``python -m reproduction all`` runs them in the root of the repository; docs/reproduction.md describes it.

Each experiment is a module (`amazon`, `explicit`, `cifar10`, `nightmare`). Its function ``tasks`` returns the
measurements to make; each result is one line of a results log (`results_log`). Its function ``summarise`` compares the
log with the numbers in `published`. `harness` runs an experiment, `report` writes the page, `datasets` and `features`
provide the data. This package is not part of the installed library, and the library does not import it.
"""
