"""What can be wrong with a request before the gate sees it: the caller's family of faults, as one exception.

`refusals` says what each is in HTTP; whoever finds one only names it, the field and the reason in plain words.
"""

from enum import StrEnum


class CallerFault(StrEnum):
    """Kinds of caller fault, complete and low-cardinality."""

    MALFORMED = "malformed"
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_PATH = "unknown_path"
    WRONG_METHOD = "wrong_method"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    CODED_BODY = "coded_body"
    KEY_REUSED = "key_reused"
    SUPERSEDED = "superseded"


class CallerError(Exception):
    """The caller's mistake. `param` names the member or header that is wrong, where there is one."""

    def __init__(self, fault: CallerFault, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message
        self.param = param
