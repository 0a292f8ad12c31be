"""An error and a warning that name a parameter, so that each interface can use its own words."""

from __future__ import annotations


class ParameterError(ValueError):
    """A parameter has a value that does not go with the data or with other parameters.

    Parameters
    ----------
    message : str
        The error in the words of Python.
    parameter : str or None
        The name of the parameter; ``None`` if the data are wrong, whatever the parameters are.
    reason : str
        What is wrong and what to do, without names of Python; the command line puts its option before it.
    """

    def __init__(self, message: str, parameter: str | None, reason: str) -> None:
        super().__init__(message)
        self.parameter, self.reason = parameter, reason

    def __reduce__(self) -> tuple[type, tuple[str, str | None, str]]:
        return type(self), (str(self), self.parameter, self.reason)


class ParameterWarning(UserWarning):
    """A parameter has a value that is valid, but probably not the best.

    Parameters
    ----------
    message : str
        The warning.
    parameter : str
        The name of the parameter.
    """

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.parameter)
