"""libfirstbad.so: where it is, loading it once, and calling it so that a failure is an exception with the library's own sentence.

    lib = _native.lib()
    run = ctypes.c_void_p()
    _native.call(lib.fb_run_open, ctypes.byref(run), ctypes.byref(config))

ctypes lets go of the interpreter lock during a call; one costs about a microsecond.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Iterator, Optional, Union

from . import _abi
from ._prototypes import PROTOTYPES
from .errors import LibraryError

_NAME = "libfirstbad.dylib" if sys.platform == "darwin" else "libfirstbad.so"
_HERE = os.path.dirname(os.path.abspath(__file__))
_lib: Optional[ctypes.CDLL] = None


def candidates() -> Iterator[str]:
    """Paths that may be the library, best first: the variables, the wheel's, that of an install prefix, that of a build tree."""
    if os.environ.get("FIRSTBAD_LIBRARY"):
        yield os.environ["FIRSTBAD_LIBRARY"]
        return  # who names one does not want another
    if os.environ.get("FIRSTBAD_BUILD"):
        yield os.path.join(os.environ["FIRSTBAD_BUILD"], _NAME)
    yield os.path.join(_HERE, "_native", _NAME)
    # PREFIX/lib/firstbad/python/firstbad: PREFIX/lib, and below it where a distribution keeps libraries by architecture.
    prefix_lib = os.path.normpath(os.path.join(_HERE, "..", "..", ".."))
    if os.path.basename(os.path.normpath(os.path.join(_HERE, ".."))) == "python":
        yield os.path.join(prefix_lib, _NAME)
        yield os.path.join(prefix_lib, f"{os.uname().machine}-linux-gnu", _NAME)
        yield os.path.join(_HERE, "..", "..", "build", _NAME)


def path() -> str:
    """The library that `lib` loads. Raises LibraryError where there is none; the sentence says where it was looked for."""
    tried = []
    for candidate in candidates():
        if os.path.exists(candidate):
            return os.path.normpath(candidate)
        tried.append(os.path.normpath(candidate))
    raise LibraryError(f"{_NAME} was not found (looked at {', '.join(tried)}): build it with make, install firstbad, "
                       f"or name it with FIRSTBAD_LIBRARY")


def _load(where: str) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(where)
    except OSError as why:
        raise LibraryError(f"{where} cannot be loaded: {why}") from why
    missing = []
    for name, (result, arguments) in PROTOTYPES.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            missing.append(name)
            continue
        function.restype = result
        function.argtypes = arguments
    if "fb_abi_version" in missing:
        raise LibraryError(f"{where} is not firstbad's library: it has no fb_abi_version")
    version = loaded.fb_abi_version()
    if version != _abi.ABI_VERSION:
        raise LibraryError(f"{where} has ABI version {version}, and this package speaks {_abi.ABI_VERSION}: "
                           f"install the two together")
    if missing:
        raise LibraryError(f"{where} is older than this package, it has no {', '.join(missing)}: install the two together, "
                           f"or run make again")
    return loaded


def lib() -> ctypes.CDLL:
    """The library, loaded once a process. Raises LibraryError. Cost: under a millisecond the first time, nothing afterwards."""
    global _lib
    if _lib is None:
        _lib = _load(path())
    return _lib


def raise_for(status: int, error: _abi.Error) -> None:
    """LibraryError for a status that is not OK."""
    if status != _abi.OK:
        raise LibraryError(error.text or f"firstbad's library answered {status}", status, error.os_errno, error.offset_bytes)


def call(function: Any, *args: Any) -> None:
    """function(*args, &error), for a function whose last argument is an fb_error. Raises LibraryError unless it returns OK."""
    error = _abi.Error()
    status = function(*args, ctypes.byref(error))
    if status != _abi.OK:
        raise_for(status, error)


def text(value: Union[bytes, ctypes.Array[ctypes.c_char], None]) -> str:
    """A `char *` or `char[]` of the library as str; "" for NULL."""
    return bytes(value).partition(b"\0")[0].decode("utf-8", "replace") if value else ""


def path_bytes(value: Union[str, "os.PathLike[str]"]) -> bytes:
    """A path as the library takes it, whatever its bytes are."""
    return os.fsencode(value)
