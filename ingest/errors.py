"""The three kinds of trouble. Whoever catches one knows what to do with it; everything else is a bug and crashes."""


class StagescopeError(Exception):
    """Base of the errors a person may read: one line that says what, where, and what to do."""


class BadInput(StagescopeError):
    """The data is wrong and stays wrong: put it aside with the reason, count it, go on."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class Unavailable(StagescopeError):
    """Something outside is away for now: keep the data, wait, try again."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadSetting(StagescopeError):
    """A setting has no meaning: stop at start, naming the setting, its value and what was expected."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"setting {name}={value!r} is not usable: expected {expected}")
        self.name = name
