"""Checkpoints outside a run: which to resume from, may this one be loaded, is it finite."""
from __future__ import annotations

import ctypes
import dataclasses
import os
from typing import Optional, Union

from . import _abi, _native
from .errors import LibraryError, LoadRefused

_Path = Union[str, "os.PathLike[str]"]
_STATES = {_abi.CKPT_SUSPECT: "suspect", _abi.CKPT_COMMITTED: "committed", _abi.CKPT_QUARANTINED: "quarantined"}
_OUTCOMES = {_abi.CKPT_OUTCOME_CLEAN: "clean", _abi.CKPT_OUTCOME_UNSUPPORTED: "unsupported", _abi.CKPT_OUTCOME_LIMIT: "limit",
             _abi.CKPT_OUTCOME_UNREADABLE: "unreadable", _abi.CKPT_OUTCOME_NON_FINITE: "non_finite"}
_KINDS = {_abi.KIND_NAN: "NaN", _abi.KIND_POS_INF: "+Inf", _abi.KIND_NEG_INF: "-Inf"}


@dataclasses.dataclass(frozen=True)
class CheckpointReport:
    """What is in a checkpoint. Counts are of elements, unless they say otherwise."""

    path: str
    outcome: str  # "clean", "unsupported" (a part could not be looked at), "limit", "unreadable", "non_finite"
    format: str  # "safetensors", "torch zip", ...
    files: int
    tensors: int
    elements: int
    bytes: int
    bad: int
    bad_tensors: int
    unscanned: int  # parts that were not looked at
    step: Optional[int]  # that the files agree on
    first_tensor: str  # "" when nothing is bad
    first_file: str
    first_index: Optional[int]  # flat
    first_kind: str  # "NaN", "+Inf", "-Inf", ""
    reason: str  # a sentence for an outcome other than clean and non_finite

    @property
    def finite(self) -> bool:
        """Every number was looked at, and none is bad."""
        return self.outcome == "clean"


def latest_committed(directory: _Path) -> str:
    """Absolute path of the checkpoint below `directory` to resume from: the newest that was read back, is finite, and came of
    updates that were all gated. Raises LibraryError (code E_NOTFOUND) where none will do; the sentence says why."""
    lib = _native.lib()
    room = ctypes.c_size_t(4096)
    path = ctypes.create_string_buffer(room.value)
    _native.call(lib.fb_ckpt_latest, _native.path_bytes(directory), path, ctypes.byref(room))
    return os.fsdecode(path.value)


def may_load(path: _Path, *, runs_dir: Optional[_Path] = None, read: bool = True) -> str:
    """The gate before a load: "committed", or "suspect" for one that is finite and that no run vouches for.

    read  compare a committed checkpoint's bytes again; False: only names and sizes. One that nobody vouches for is always read.
    Raises LoadRefused for one that is quarantined, not finite or not readable; LibraryError where there is none at `path`.
    Cost: one read of its bytes.
    """
    state = ctypes.c_int32(0)
    runs = None if runs_dir is None else _native.path_bytes(runs_dir)
    how = _abi.CKPT_CHECK_BYTES if read else _abi.CKPT_CHECK_SIZE
    try:
        _native.call(_native.lib().fb_ckpt_may_load, _native.path_bytes(path), runs, how, ctypes.byref(state))
    except LibraryError as why:
        if why.code == _abi.E_WITHHELD:
            raise LoadRefused(why.sentence) from None
        raise
    return _STATES[state.value]


def scan_checkpoint(path: _Path, *, digest: bool = False) -> CheckpointReport:
    """Read a checkpoint, file or folder, and judge every number in it. Nothing that is in it is run (pickle is read as data).

    Raises LibraryError where there is nothing at `path` or it cannot be read at all. Cost: one read of all bytes, little memory.
    """
    result = _abi.CkptResult.new()
    flags = 0 if digest else _abi.CKPT_SCAN_NO_DIGEST
    _native.call(_native.lib().fb_ckpt_scan, _native.path_bytes(path), flags, ctypes.byref(result))
    return CheckpointReport(
        path=os.path.abspath(os.fspath(path)), outcome=_OUTCOMES[result.outcome], format=_native.text(result.format),
        files=result.files, tensors=result.tensors, elements=result.elements, bytes=result.bytes, bad=result.bad,
        bad_tensors=result.bad_tensors, unscanned=result.unscanned, step=None if result.step < 0 else result.step,
        first_tensor=_native.text(result.first_tensor), first_file=_native.text(result.first_file),
        first_index=None if result.first_index == _abi.NO_INDEX else result.first_index,
        first_kind=_KINDS.get(result.first_kind, ""), reason=_native.text(result.reason))
