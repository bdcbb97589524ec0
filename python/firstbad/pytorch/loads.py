"""The gate before a load: a checkpoint that a run knows to be bad is not loaded, and the message says which to take instead.

torch.load, safetensors (safe_open, torch.load_file) and torch.distributed.checkpoint.load are wrapped. A path that no run ever
registered passes unread and costs a look at three folders. One that is registered goes through fb_ckpt_may_load: committed passes,
quarantined is refused, and a suspect is read first. The step of what was loaded becomes `checkpoint_parent` of the run that begins.

Resuming from what is known to be good, in a plain script and with the Trainer of transformers:

    path = firstbad.latest_committed("checkpoints")          # LibraryError, code E_NOTFOUND: nothing to resume from yet
    state = torch.load(path)

    trainer.train(resume_from_checkpoint=firstbad.latest_committed("output"))
"""
from __future__ import annotations

import os
import struct
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from .. import checkpoints
from ..errors import LibraryError, LoadRefused
from . import late
from .patch import guest

_LOG_BYTES_MAX = 64 << 20
# A record of checkpoints.log (docs/format/ledger.md, records.md): 40 bytes of header; then u16 version, i64 step, 4 x i32, 5 x u64,
# and the path with its length before it. What is read here only says where to ask; the answer is the library's.
_MAGIC, _HEADER, _STEP, _FIXED = b"\xfbRec", 40, 2, 2 + 8 + 16 + 40

parent: Optional[int] = None  # step of the registered checkpoint that was loaded last, before a run had begun
_answered: Dict[Tuple[str, int, int], None] = {}  # path, time, size: loaded already, so it is not read a second time


def reset() -> None:
    """Forget what was loaded: for tests."""
    global parent
    parent = None
    _answered.clear()


# ---- is it registered? -----------------------------------------------------------------------------------------------------------

def _homes(folder: str) -> Iterator[str]:
    """Logs of registries that know of checkpoints in a folder."""
    if not os.path.isdir(os.path.join(folder, ".firstbad")):
        return
    yield os.path.join(folder, ".firstbad", "checkpoints.log")
    try:
        with open(os.path.join(folder, ".firstbad", "homes"), "rb") as file:
            for line in file.read(1 << 20).split(b"\n"):
                if line:
                    yield os.path.join(os.fsdecode(line), "checkpoints.log")
    except OSError:
        return


def _places(path: str) -> List[Tuple[str, str]]:
    """(folder that may name registries, path that they may know) of a file: itself, and the folders that may be one checkpoint with
    it."""
    out = []
    for _ in range(3):
        folder = os.path.dirname(path)
        below = path.partition(os.sep + ".firstbad" + os.sep)[0]
        out.append((below if below != path else folder, path))
        if folder == path:
            break
        path = folder
    return out


def _step_in(log: str, path: str) -> Optional[int]:
    """The step of the newest record of `path` in a log; None where it has none."""
    wanted = os.fsencode(path)
    try:
        if os.path.getsize(log) > _LOG_BYTES_MAX:
            return -1  # too long to be looked through here: the library is asked
        with open(log, "rb") as file:
            data = file.read()
    except OSError:
        return None
    at = data.rfind(wanted)
    other: Optional[int] = None
    while at >= 0:
        payload = at - 2 - _FIXED
        if int.from_bytes(data[at - 2:at], "little") == len(wanted):
            if payload >= _HEADER and data[payload - _HEADER:payload - _HEADER + 4] == _MAGIC:
                return int(struct.unpack_from("<q", data, payload + _STEP)[0])
            other = -1  # where it was moved to, or its pin
        at = data.rfind(wanted, 0, at)
    return other


def registered(path: str) -> Optional[Tuple[str, int]]:
    """(path as it is registered, step or -1) of a checkpoint that `path` is, or lies in; None for one that no run knows."""
    path = os.path.realpath(path)
    for folder, candidate in _places(path):
        for log in _homes(folder):
            step = _step_in(log, candidate)
            if step is not None:
                return candidate, step
    return None


# ---- the gate --------------------------------------------------------------------------------------------------------------------

def _advice(path: str) -> str:
    """Which checkpoint to take instead."""
    folder = os.path.dirname(path).partition(os.sep + ".firstbad")[0]
    try:
        return f"Resume from {checkpoints.latest_committed(folder)}"
    except LibraryError as why:
        return f"There is none to resume from in {folder}: {why.sentence}"


@guest("loads")
def _gate(target: Any) -> None:
    path = _path_of(target)
    if path is None or not os.path.lexists(path):
        return
    found = registered(path)
    if found is None:
        return
    known, step = found
    facts = os.stat(known)
    key = (known, facts.st_mtime_ns, facts.st_size)
    if key not in _answered:
        try:
            state = checkpoints.may_load(known, read=False)
        except LoadRefused as why:
            raise LoadRefused(f"{path} is not loaded: {why}. {_advice(known)}", step=step if step >= 0 else None) from None
        except LibraryError as why:
            sys.stderr.write(f"firstbad: {path}: it could not be asked whether this may be loaded: {why.sentence}\n")
            return
        if state == "suspect":
            sys.stderr.write(f"firstbad: {known} is finite, and no run vouches for the updates that made it. {_advice(known)}\n")
        _answered[key] = None
    _loaded(step)


def _loaded(step: int) -> None:
    global parent
    if step < 0:
        return
    module = sys.modules.get(__package__ + ".session")
    session = module.current() if module is not None else None
    parent = step
    if session is not None and session.number == session.first_step and session.update is None:
        session.checkpoint_parent = step


def _path_of(target: Any) -> Optional[str]:
    path = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
    if path is None or isinstance(path, int):
        return None
    text = os.fsdecode(os.fspath(path))
    return None if "://" in text else os.path.abspath(text)


@guest("loads")
def _gone(target: Any) -> None:
    """There is no such file: say so where it was set aside. The program's own exception goes on: it may know what to do."""
    path = _path_of(target)
    if path is None or os.path.lexists(path):
        return
    for folder, candidate in _places(os.path.realpath(path)):
        aside = os.path.join(folder, ".firstbad", "quarantine", os.path.basename(candidate))
        if os.path.lexists(aside):
            sys.stderr.write(f"firstbad: {candidate} is quarantined, it lies in {aside}. {_advice(candidate)}\n")
            return


def _guarded(target: Any, original: Any, args: Any, kwargs: Any) -> Any:
    _gate(target)
    try:
        return original(*args, **kwargs)
    except FileNotFoundError:
        _gone(target)
        raise


def _argument(args: Tuple[Any, ...], kwargs: Any, at: int, name: str) -> Any:
    return args[at] if len(args) > at else kwargs.get(name)


def _wrapper(argument: str) -> Any:
    """A wrapper of a function whose first argument, called `argument`, is the path."""
    def factory(original: Any) -> Any:
        def load(*args: Any, **kwargs: Any) -> Any:
            return _guarded(_argument(args, kwargs, 0, argument), original, args, kwargs)

        return load

    return factory


def _wrap_distributed(original: Any) -> Any:
    def load(*args: Any, **kwargs: Any) -> Any:
        where = kwargs.get("checkpoint_id")
        if where is None:
            where = getattr(kwargs.get("storage_reader"), "path", None)
        return _guarded(where, original, args, kwargs)

    return load


def install(patches: Any) -> None:
    """Wrap the functions that load; those of modules that are imported later, then."""
    patches.wrap_everywhere(torch.serialization, "load", _wrapper("f"))
    later = late.Later()
    patches.keep(later)

    def safetensors_there(module: Any) -> None:
        original = module.safe_open
        patches.wrap(module, "safe_open", _wrapper("filename"))
        late.rebind(patches, original, module.safe_open)

    def safetensors_torch_there(module: Any) -> None:
        original = module.load_file
        patches.wrap(module, "load_file", _wrapper("filename"))
        late.rebind(patches, original, module.load_file)

    def distributed_there(module: Any) -> None:
        patches.wrap_everywhere(module, "load", _wrap_distributed)

    later.when_imported("safetensors", safetensors_there)
    later.when_imported("safetensors.torch", safetensors_torch_there)
    later.when_imported("torch.distributed.checkpoint.state_dict_loader", distributed_there)
