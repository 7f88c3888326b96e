"""The exceptions of the package. Each says which argument, its value and what is allowed."""


class Error(ValueError):
    """A wrong argument: ``str()`` reads "top_p = 1.5 is not allowed: (0, 1]".

    Where ``value`` is empty, nothing was given, and ``str()`` reads "missing prompt: a text". The
    three parts are also there one by one, as ``parameter``, ``value`` and ``allowed``.

    >>> try:
    ...     sluice.SamplingParams(top_p=1.5)
    ... except sluice.Error as error:
    ...     print(error.parameter, error.value, error.allowed, sep="; ")
    top_p; 1.5; (0, 1]
    """

    def __init__(self, parameter: str, value: str, allowed: str) -> None:
        super().__init__(parameter, value, allowed)
        self.parameter = parameter
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        if not self.value:
            place, colon, name = self.parameter.rpartition(": ")
            return f"{place}{colon}missing {name}: {self.allowed}"
        return f"{self.parameter} = {self.value} is not allowed: {self.allowed}"


class ArgumentTypeError(Error, TypeError):
    """An argument of another type, dtype or device, or a keyword that the call does not have.

    >>> sluice.select(np.zeros(3, np.float32), top_k=1.5)
    Traceback (most recent call last):
    sluice.errors.ArgumentTypeError: top_k = 1.5 is not allowed: a whole number, or one a row
    """


class UnavailableError(Error):
    """A backend that this build or this machine does not have.

    >>> issubclass(sluice.UnavailableError, sluice.Error)
    True
    """


class ExhaustedError(Error):
    """No room now; the same call may succeed later, when a request was removed.

    >>> sampler = sluice.Sampler(vocab=4, max_requests=1)
    >>> request = sampler.add()
    >>> sampler.add()
    Traceback (most recent call last):
    sluice.errors.ExhaustedError: requests = 2 is not allowed: at most max_requests, 1, at a time
    """
