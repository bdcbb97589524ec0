"""The bundle of a bad update: its batch, random state, parameters on entry and program, for `firstbad replay` and `firstbad
bisect`.

`command` is put in only where all that a replay needs is in the bundle as well: what is promised can be kept.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _native
from ..errors import LibraryError
from . import encode
from .program import Program
from .tape import _DTYPES as DTYPES

BYTES_MAX = 1 << 30  # of one rank's tensors


class Writer:
    """One rank's part. complete: everything that was handed over is in it."""

    def __init__(self, folder: str, rank: int, world: int, run_id: str, case: str, step: int) -> None:
        self.folder, self.rank, self.world, self.complete = folder, rank, world, True
        self.handle, self.lib = ctypes.c_void_p(), _native.lib()
        config = abi.BundleConfig.new(rank=rank, world=world, folder=folder, run_id=run_id, case_id=case, step=step,
                                      bytes_max=BYTES_MAX)
        _native.call(self.lib.fb_bundle_create, ctypes.byref(self.handle), ctypes.byref(config))

    def put(self, part: int, name: str, tensor: torch.Tensor) -> None:
        """A tensor. One that does not fit, or has no form in the file, is left out."""
        data = tensor.detach()
        data = data.to_local() if hasattr(data, "to_local") else data
        if data.is_meta or data.is_nested or data.layout != torch.strided or data.dtype not in DTYPES or data.dim() > abi.DIMS_MAX:
            self.complete = False
            return
        data = data.contiguous().cpu()
        shape = (ctypes.c_int64 * max(data.dim(), 1))(*data.shape)
        err = abi.Error()
        status = self.lib.fb_bundle_put(self.handle, part, name.encode(), DTYPES[data.dtype], data.dim(), shape,
                                        data.data_ptr() if data.numel() else None, ctypes.byref(err))
        if status in (abi.E_LIMIT, abi.E_NOMEM, abi.E_DTYPE):
            self.complete = False
        else:
            _native.raise_for(status, err)

    def text(self, key: str, value: str) -> None:
        _native.call(self.lib.fb_bundle_set_text, self.handle, key.encode(), value.encode())

    def integer(self, key: str, value: int) -> None:
        _native.call(self.lib.fb_bundle_set_integer, self.handle, key.encode(), value)

    def command(self, argv: Sequence[str], folder: str) -> None:
        words = (ctypes.c_char_p * (len(argv) + 1))(*[os.fsencode(word) for word in argv], None)
        _native.call(self.lib.fb_bundle_set_command, self.handle, words, os.fsencode(folder))

    def finish(self) -> None:
        handle, self.handle = self.handle, ctypes.c_void_p()
        _native.call(self.lib.fb_bundle_finish, handle)

    def abandon(self) -> None:
        self.lib.fb_bundle_abandon(self.handle)
        self.handle = ctypes.c_void_p()


_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")


def command_of_this_process(world: int = 1) -> Optional[List[str]]:
    """The arguments that would start this job again, launcher included; None where they are not known or mean nothing outside (a
    child that was spawned, one node of several)."""
    words = list(
        getattr(sys, "orig_argv", None) or ([sys.executable] + sys.argv if sys.argv and os.path.exists(sys.argv[0]) else [])
    )
    if not words or not sys.executable or any(word in ("--multiprocessing-fork", "-i", "-") for word in words):
        return None
    if len(words) == 1 or any("multiprocessing" in word and "spawn" in word for word in words):
        return None
    if world > 1 and "LOCAL_WORLD_SIZE" in os.environ:
        return _launcher_command() if os.environ["LOCAL_WORLD_SIZE"] == str(world) else None
    return [sys.executable] + words[1:]


def _launcher_command() -> Optional[List[str]]:
    """What the process above this one was started with, if that is a launcher of ranks."""
    try:
        with open(f"/proc/{os.getppid()}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return None
    for i, word in enumerate(words[:4]):
        name = os.path.basename(word)
        if name in _LAUNCHERS:
            return _launcher(name, words[i], words[i + 1:])
        if word == "-m" and words[i + 1:i + 2] and words[i + 1] in _LAUNCHER_MODULES:
            return _launcher("torchrun", "", words[i + 2:])
    return None


def _launcher(name: str, path: str, rest: List[str]) -> Optional[List[str]]:
    beside = os.path.join(os.path.dirname(sys.executable), name)
    path = path if os.path.isabs(path) and os.path.exists(path) else beside
    return [path] + rest if os.path.exists(path) else None


def write(folder: str, program: Program, names: Any, finding: Any, *, rank: int, world: int, run_id: str, case: str, step: int,
          precision: str, samples: Optional[Sequence[int]] = None, instead: Optional[Dict[int, torch.Tensor]] = None,
          losses: Sequence[torch.Tensor] = ()) -> bool:
    """This rank's part of the bundle in `folder`. True: it has all that a replay needs, and says how to start one.

    instead: externals in another form (the smallest batch). losses: as the run had them, by which a replay in another process is
    known for the run. Raises LibraryError; nothing is left behind then.
    """
    writer = Writer(folder, rank, world, run_id, case, step)
    try:
        why = ""
        try:
            text, batch, rng = encode.write(program)
        except encode.NotPlain as reason:
            text, rng, why = "", {}, str(reason)
            batch = {f"{number}.{e.name or 'tensor'}": e.tensor for number, e in enumerate(program.externals) if e.batch}
        for number, tensor in (instead or {}).items():
            name = f"{number}.{program.externals[number].name or 'tensor'}"
            if name in batch:
                batch[name] = tensor
        for name, tensor in batch.items():
            writer.put(abi.BUNDLE_BATCH, name, tensor)
        if samples:
            writer.put(abi.BUNDLE_BATCH, "sample_ids", torch.tensor(list(samples), dtype=torch.int64))
        for name, tensor in rng.items():
            writer.put(abi.BUNDLE_RNG, name, tensor)
        for name, tensor in state_of(program):
            writer.put(abi.BUNDLE_STATE, name, tensor)
        for key, value in (("rank", finding.rank), ("boundary", finding.boundary), ("micro_step", finding.micro),
                           ("kind", finding.kind), ("injected", int(finding.injected))):
            writer.integer(f"finding.{key}", value)
        writer.text("finding.module", finding.module)
        writer.text("finding.tensor", finding.tensor)
        writer.text("precision", precision)
        writer.text("names", names_text(program, names))
        if losses and not instead and all(loss.numel() == 1 and not loss.is_complex() for loss in losses):
            writer.text("losses", " ".join(float(loss).hex() for loss in losses))
        command = command_of_this_process(world)
        promised = bool(text) and writer.complete and command is not None
        if promised and command is not None:
            writer.text("program", text)
            writer.command(command, os.getcwd())
        else:
            writer.text("not_replayable", why or ("a tensor does not fit" if not writer.complete
                                                  else "the command of this process is not known"))
        writer.finish()
        return promised
    except BaseException:
        writer.abandon()
        raise


def state_of(program: Program) -> List[Tuple[str, torch.Tensor]]:
    """Parameters and buffers of the roots on entry: ("0/fc.weight", ...)."""
    before = {id(live): copy for live, copy in program.buffers}
    found, seen = [], set()
    for index, (_, root) in enumerate(program.roots):
        if not isinstance(root, torch.nn.Module):
            continue
        for name, tensor in list(root.named_parameters()) + list(root.named_buffers()):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found.append((f"{index}/{name}", before.get(id(tensor), tensor)))
    return found


def names_text(program: Program, names: Any) -> str:
    """How the leaves of the roots are called: {"0/fc.weight": ["fc", "weight"]}."""
    import json
    called = {id(leaf): [module, name] for leaf, module, name in names.gradients}
    return json.dumps({f"{index}/{path}": called[id(leaf)] for index, (_, root) in enumerate(program.roots)
                       if isinstance(root, torch.nn.Module) for path, leaf in root.named_parameters() if id(leaf) in called})


def seal(folder: str, world: int) -> None:
    """Close the bundle, when all ranks have finished theirs. One rank. Raises LibraryError."""
    _native.call(_native.lib().fb_bundle_seal, folder.encode(), world)


class Bundle:
    """A sealed bundle, read. Every byte was compared with its hash. Raises LibraryError."""

    def __init__(self, folder: str) -> None:
        self.lib, self.handle = _native.lib(), ctypes.c_void_p()
        _native.call(self.lib.fb_bundle_open, ctypes.byref(self.handle), folder.encode())
        self.world, self.step = int(self.lib.fb_bundle_world(self.handle)), int(self.lib.fb_bundle_step(self.handle))
        self.run_id = _native.text(self.lib.fb_bundle_run_id(self.handle))
        self.case_id = _native.text(self.lib.fb_bundle_case_id(self.handle))

    def text(self, rank: int, key: str) -> str:
        """"" where it is not there."""
        return _native.text(self.lib.fb_bundle_text(self.handle, rank, key.encode()))

    def integer(self, rank: int, key: str) -> int:
        value = ctypes.c_int64()
        _native.call(self.lib.fb_bundle_integer, self.handle, rank, key.encode(), ctypes.byref(value))
        return value.value

    def tensor(self, rank: int, part: int, name: str) -> torch.Tensor:
        """On the CPU. Raises LibraryError where it is not in it."""
        dtype, ndim, count = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_uint64()
        shape = (ctypes.c_int64 * abi.DIMS_MAX)()
        _native.call(
            self.lib.fb_bundle_find,
            self.handle,
            rank,
            part,
            name.encode(),
            ctypes.byref(dtype),
            ctypes.byref(ndim),
            shape,
            ctypes.byref(count),
        )
        kind = next(known for known, number in DTYPES.items() if number == dtype.value)
        out = torch.empty(tuple(shape[:ndim.value]), dtype=kind)
        _native.call(self.lib.fb_bundle_get, self.handle, rank, part, name.encode(), dtype.value, count.value,
                     out.data_ptr() if out.numel() else None)
        return out

    def close(self) -> None:
        self.lib.fb_bundle_close(self.handle)
        self.handle = ctypes.c_void_p()


__all__ = ["Bundle", "LibraryError", "Writer", "command_of_this_process", "seal", "state_of", "write"]
