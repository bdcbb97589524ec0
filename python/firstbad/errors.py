"""What firstbad raises. Every message is the whole answer: what was done, what was found, what to do next."""
from __future__ import annotations

from typing import Any, Optional

__all__ = ["FirstbadError", "LibraryError", "NonFiniteError", "Halted", "SaveWithheld", "LoadRefused", "BadTensor"]


class FirstbadError(Exception):
    """Something about firstbad itself did not work: its library, its files, the way it was called."""


class LibraryError(FirstbadError):
    """A function of the C library returned a failure.

    code      the status, one of the E_* constants of firstbad._abi (E_IO, ...); 0 where the library itself could not be loaded
    sentence  what the library said
    """

    def __init__(self, sentence: str, code: int = 0, os_errno: int = 0, offset_bytes: int = 0) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code
        self.os_errno = os_errno
        self.offset_bytes = offset_bytes

    def __reduce__(self) -> Any:
        # Exceptions cross process borders (torch.multiprocessing, concurrent.futures) by pickle.
        return type(self), (self.sentence, self.code, self.os_errno, self.offset_bytes)


class NonFiniteError(FloatingPointError):
    """A number that may not be there, and what is known of it. None stands for what is not known.

    step      0-based number of the update         rank    0-based
    module    "h.7.attn"                           operator  "softmax (forward)"
    source    "train.py:88"                        cause   class and sentence
    case      folder of the case, for `firstbad why`
    """

    def __init__(self, message: str, *, step: Optional[int] = None, rank: Optional[int] = None, module: Optional[str] = None,
                 operator: Optional[str] = None, source: Optional[str] = None, cause: Optional[str] = None,
                 case: Optional[str] = None) -> None:
        super().__init__(message)
        self.step = step
        self.rank = rank
        self.module = module
        self.operator = operator
        self.source = source
        self.cause = cause
        self.case = case

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), str(self), dict(self.__dict__))


class Halted(NonFiniteError):
    """The run was halted: no update is applied any more. Raised on all ranks at the same update."""


class SaveWithheld(NonFiniteError):
    """A checkpoint was not written, because what was about to be written is not finite."""


class LoadRefused(NonFiniteError):
    """A checkpoint was not loaded: it is quarantined, not finite or not readable."""


class BadTensor(NonFiniteError):
    """firstbad.check found a tensor that is not finite.

    path   where in what was handed over: "model.h.0.weight"
    kind   "NaN", "+Inf" or "-Inf"
    index  of the first bad element, as a tuple in the tensor's shape
    report the CheckReport with all counts
    """

    def __init__(self, message: str, *, path: str = "", kind: str = "", index: Any = None, report: Any = None,
                 **known: Any) -> None:
        super().__init__(message, **known)
        self.path = path
        self.kind = kind
        self.index = index
        self.report = report


def _rebuild(kind: Any, message: str, state: Any) -> NonFiniteError:
    out = kind.__new__(kind, message)
    out.args = (message,)
    out.__dict__.update(state)
    return out  # type: ignore[no-any-return]
