"""The gate before a save, and what happens to a checkpoint afterwards.

torch.save, safetensors.torch.save_file and save, torch.distributed.checkpoint.save and async_save are wrapped; what frameworks save
goes through these. For an object that is a checkpoint of the session's state (stored.is_checkpoint):

    before   every number that is about to be written is looked at in memory: not finite, and errors.SaveWithheld is raised, nothing
             was written, and the older file is as it was. A run that only observes writes.
             A file of its own: fb_run_checkpoint_begin, which keeps a committed file of that name.
    after    the file waits until nobody writes to it any more: the next forward, the next save of that name, the end. Then the
             library reads it back while training goes on. In a folder that is one checkpoint (checkpoint-500) that is the folder,
             with what the trainer put there besides. Who saves to ckpt.tmp and renames it is followed by the file's inode.

Anything else passes untouched. So does a save in the middle of an update as far as the registry goes: it is looked at, not
registered.
"""
from __future__ import annotations

import dataclasses
import os
import re
import sys
import threading
from typing import Any, Callable, List, Optional, Tuple

import torch

from .. import _abi as abi
from .. import _leaves, _native, checkpoints
from ..errors import FirstbadError, LibraryError, SaveWithheld
from . import begin, late, stored, views
from .patch import guest, usable
from .stored import Part, State

# A folder of such a name holds one checkpoint. Others ("out", "best") hold whatever the program puts there, file by file.
_ONE_CHECKPOINT = re.compile(r"(^|[-_.])(checkpoint|ckpt|step|iter|epoch|global_?step|save|state)s?[-_=.]?\d+$", re.IGNORECASE)
_ROLES = {abi.ROLE_PARAMETER, abi.ROLE_MOMENT, abi.ROLE_BUFFER, abi.ROLE_EMA}


@dataclasses.dataclass
class Pending:
    """A checkpoint that was written and not handed to the library yet. odd: path of a tensor in it that is not finite and no
    state."""

    path: str
    step: int
    odd: str
    where: Tuple[int, int]  # device and inode; (0, 0): not known
    folder: Tuple[int, int] = (0, 0)  # of the folder it lies in
    future: Any = None  # of an asynchronous save


@dataclasses.dataclass
class _Save:
    """What was found out before the original runs."""

    path: Optional[str]  # None: not a file that has a name
    step: int
    odd: str
    registered: bool


_pending: List[Pending] = []
_handed_over = 0  # to the library, whose verdicts are polled from then on
_inside = threading.local()
_in_background = 0  # asynchronous saves that run; their threads call the wrapped functions too


def _session() -> Any:
    module = sys.modules.get(__package__ + ".session")
    return module.current() if module is not None else None


# ---- before ----------------------------------------------------------------------------------------------------------------------

@guest("saves")
def _before(thing: Any, target: Any, expand: bool = False) -> Optional[_Save]:
    """None: not ours to look at. Raises SaveWithheld."""
    session = _session()
    if session is None or session.dead or not session.run or getattr(_inside, "depth", False) or isinstance(thing, torch.Tensor):
        return None
    own_thread = threading.get_ident() == session.thread
    if _in_background and not own_thread:
        return None
    whole = stored.expanded(thing) if expand else thing
    if next(stored.tensors_in(whole), None) is None:
        return None
    state = State(session)
    parts = state.parts(whole)
    if not stored.is_checkpoint(thing, parts, state):
        return None
    between = own_thread and not _others_would_wait(session) and session.between()
    step = max(0, int(session.number) - 1)
    path = _path_of(target)
    judged = [part for part in parts if part.role in _ROLES and not part.constant]
    bad = _gate(session, step, judged) if between else _look(judged)
    if bad is not None and not begin.observes(session):
        raise _withheld(session, step, path, bad)
    odd = stored.first_odd(parts)
    return _Save(path, step, odd.path if odd is not None else "", between and path is not None)


def _others_would_wait(session: Any) -> bool:
    """Ending this update takes a vote, and a rank that saves alone must not begin one."""
    update = session.update
    return getattr(session, "world", 1) > 1 and update is not None and getattr(update, "proposed", False)


def _path_of(target: Any) -> Optional[str]:
    """Absolute path of what is written; None for memory, pipes and what has no name."""
    if isinstance(target, (str, os.PathLike)):
        path = os.fspath(target)
    else:
        path = getattr(target, "name", None)
    if not isinstance(path, (str, bytes)) or not path:
        return None
    path = os.fsdecode(path)
    if "://" in path or (not isinstance(target, (str, os.PathLike)) and not os.path.isfile(path)):
        return None
    return os.path.abspath(path)


def _look(parts: List[Part]) -> Optional[Tuple[Part, str]]:
    """The first part that is not finite, where the library cannot be asked: another thread, the middle of an update."""
    for part in parts:
        leaf = _leaves.look(part.tensor)
        if leaf is None or leaf.why or (leaf.view is None and leaf.tensor is None):
            continue
        counts = _leaves.count(leaf)
        if counts.first_index is not None:
            return part, (f"{part.path} holds {counts.bad:,} non-finite numbers, {counts.first_kind} first at "
                          f"{list(leaf.index(counts.first_index))}")
    return None


def _gate(session: Any, step: int, parts: List[Part]) -> Optional[Tuple[Part, str]]:
    """fb_run_save_gate over the parts: what it finds is recorded, and the next vote of all ranks hears of it."""
    lib, run = _native.lib(), session.run
    hosted: List[Part] = []
    tensors: List[torch.Tensor] = []
    for part in parts:
        memory = views.memory_of(part.tensor.detach())
        if memory is None or not memory.numel():
            continue
        if memory.device.type != "cpu":
            if not _leaves.by_torch(memory).bad:
                continue
            memory = memory.cpu()  # the one that is bad is shown to the library, so that there is a record
        hosted.append(part)
        tensors.append(memory)
    if not hosted:
        return None
    sites = [session.names.site(run, part.role, part.module, part.name, tuple(tensor.shape))
             for part, tensor in zip(hosted, tensors)]
    table = views.Table(sites)
    table.update(tensors)
    result, error = abi.SaveResult.new(), abi.Error()
    status = lib.fb_run_save_gate(run, step, table.array, len(hosted), result, error)
    if status not in (abi.OK, abi.E_WITHHELD):
        _native.raise_for(status, error)
    if not result.bad:
        return None
    first = next((part for part, site in zip(hosted, sites) if site == result.first_site), hosted[0])
    shape = next((tuple(tensor.shape) for tensor, site in zip(tensors, sites) if site == result.first_site), ())
    index = list(_leaves.unravel(int(result.first_index), shape))
    kind = _leaves.KINDS.get(result.first_kind, "a bad number")
    return first, (f"{_native.text(result.first_tensor)} holds {kind}, first at {index} ({result.bad:,} bad numbers in "
                   f"{result.bad_tensors:,} tensors)")


def _withheld(session: Any, step: int, path: Optional[str], bad: Tuple[Part, str]) -> SaveWithheld:
    part, sentence = bad
    text = f"the checkpoint {path or 'in memory'} was not written: after step {step}, {sentence}."
    if path is not None:
        try:
            text += f" Resume from {checkpoints.latest_committed(os.path.dirname(path))}"
        except (LibraryError, FirstbadError):
            text += " There is no committed checkpoint beside it"
    return SaveWithheld(text, step=step, rank=session.rank, module=f"{part.module}.{part.name}" if part.module else part.name)


# ---- writing ---------------------------------------------------------------------------------------------------------------------

@guest("saves")
def _begin(save: _Save) -> None:
    session = _session()
    if session is None or not save.registered or save.path is None or _folder_of(save.path) is not None:
        return
    if not os.path.lexists(save.path):
        return
    for waiting in [one for one in _pending if one.path == save.path]:
        _pending.remove(waiting)  # written over before anybody read it
    try:
        _native.call(_native.lib().fb_run_checkpoint_begin, session.run, _native.path_bytes(save.path), save.step)
    except LibraryError as why:
        session.coverage.note(f"checkpoint {save.path}: the older file of this name is not kept: {why.sentence}")


@guest("saves")
def _after(save: _Save, future: Any = None) -> None:
    if not save.registered or save.path is None:
        return
    _pending[:] = [one for one in _pending if one.path != save.path]
    _pending.append(Pending(save.path, save.step, save.odd, _where(save.path), _where(os.path.dirname(save.path)), future))


def _guarded(thing: Any, target: Any, original: Callable[[], Any], expand: bool = False, background: bool = False) -> Any:
    global _in_background
    if not usable("saves") or getattr(_inside, "depth", False) or _session() is None:
        return original()
    save = _before(thing, target, expand)
    if save is None:
        return original()
    if not expand:
        _begin(save)
    _inside.depth = True
    if background:
        _in_background += 1
    try:
        out = original()
    except BaseException:
        if background:
            _in_background -= 1
        raise
    finally:
        _inside.depth = False
    future = _future_of(out) if background else None
    if background:
        _when_done(future)
    _after(save, future)
    return out


def _future_of(out: Any) -> Any:
    """What async_save gave: a Future, or an object that has one."""
    if hasattr(out, "done"):
        return out
    return getattr(out, "upload_completion", None)


def _when_done(future: Any) -> None:
    def ended(_: Any) -> None:
        global _in_background
        _in_background -= 1

    add = getattr(future, "add_done_callback", None)
    if add is not None:
        add(ended)
    else:
        ended(None)


# ---- after -----------------------------------------------------------------------------------------------------------------------

def _folder_of(path: str) -> Optional[str]:
    """The folder that is one checkpoint with `path` in it; None where `path` stands for itself. A folder that the program works in
    is none, whatever its name."""
    folder = os.path.dirname(path)
    if not _ONE_CHECKPOINT.search(os.path.basename(folder)):
        return None
    session = _session()
    places = [os.getcwd(), sys.path[0] if sys.path else "", getattr(session, "folder", "")]
    if any(place and os.path.commonpath([os.path.abspath(place), folder]) == folder for place in places):
        return None
    return folder


def _where(path: str) -> Tuple[int, int]:
    """(device, inode); (0, 0) where there is nothing."""
    try:
        facts = os.lstat(path)
    except OSError:
        return 0, 0
    return facts.st_dev, facts.st_ino


def _named(folder: str, wanted: Tuple[int, int]) -> Optional[str]:
    """The entry of a folder that has this device and inode."""
    if wanted == (0, 0):
        return None
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.inode() == wanted[1] and entry.stat(follow_symlinks=False).st_dev == wanted[0]:
                    return entry.path
    except OSError:
        return None  # that folder is gone itself
    return None


def _found_again(waiting: Pending) -> Optional[str]:
    """Where a file or folder is now that was renamed after the save, or its folder was; None where it is gone."""
    if os.path.lexists(waiting.path):
        return waiting.path
    folder, name = os.path.split(waiting.path)
    found = _named(folder, waiting.where) or _named(os.path.dirname(folder), waiting.where)
    if found is None and not os.path.lexists(folder):
        moved = _named(os.path.dirname(folder), waiting.folder)
        found = os.path.join(moved, name) if moved is not None and os.path.lexists(os.path.join(moved, name)) else None
    return found


@guest("saves")
def flush(session: Any, last: bool = False) -> None:
    """Hand what was written to the library, to be read back. Between steps. last: nothing comes after this; wait for asynchronous
    saves no longer. Cost: nothing where nothing was saved; else a record an item."""
    if _pending and session.run:
        _hand_over(session, last)
    if _handed_over and session.run:
        _tell_verdicts(session)


def _hand_over(session: Any, last: bool) -> None:
    now: List[Pending] = []
    later: List[Pending] = []
    for waiting in _pending:
        (later if waiting.future is not None and not waiting.future.done() and not last else now).append(waiting)
    _pending[:] = later
    units: List[Pending] = []
    for waiting in now:
        path = _found_again(waiting)
        if path is None:
            continue  # the program deleted it
        unit = _folder_of(path) or path
        known = next((one for one in units if one.path == unit), None)
        if known is None:
            units.append(Pending(unit, waiting.step, waiting.odd, waiting.where))
        else:
            known.step, known.odd = max(known.step, waiting.step), known.odd or waiting.odd
    for unit_ in units:
        _register(session, unit_)


def _register(session: Any, unit: Pending) -> None:
    found = checkpoints.scan_checkpoint(unit.path) if unit.odd else None
    if found is not None and found.bad:
        session.coverage.note(f"checkpoint {unit.path}: {found.first_tensor or unit.odd} in it is not finite and no part of the "
                              f"training state, so nobody vouches for this file")
        return
    global _handed_over
    try:
        _handed_over += 1
        _native.call(_native.lib().fb_run_checkpoint_verify, session.run, _native.path_bytes(unit.path), unit.step)
    except LibraryError as why:
        session.coverage.note(f"checkpoint {unit.path} stays suspect: {why.sentence}")


def _tell_verdicts(session: Any) -> None:
    """What the reader of the library found since: a checkpoint that is bad on disk is worth a line."""
    lib = _native.lib()
    result = abi.CheckpointResult.new()
    while lib.fb_run_checkpoint_poll(session.run, result, abi.Error()) == abi.OK:
        if result.state == abi.CKPT_QUARANTINED:
            sys.stderr.write(f"firstbad: checkpoint {_native.text(result.path)} was read back and is quarantined: "
                             f"{_native.text(result.reason)}\n")
        result = abi.CheckpointResult.new()


def closing(session: Any) -> None:
    """The session is about to end, between steps: everything that waits is handed over, and the verdicts are waited for."""
    flush(session, last=True)
    _wait(session)


@guest("saves")
def _wait(session: Any) -> None:
    if session.run:
        _native.call(_native.lib().fb_run_checkpoint_wait, session.run, -1)
        _tell_verdicts(session)


def reset() -> None:
    """Forget what waits: for tests."""
    _pending.clear()


# ---- the wrappers ----------------------------------------------------------------------------------------------------------------

def _argument(args: Tuple[Any, ...], kwargs: Any, at: int, name: str) -> Any:
    return args[at] if len(args) > at else kwargs.get(name)


def _wrap_torch_save(original: Any) -> Any:
    def save(*args: Any, **kwargs: Any) -> Any:
        return _guarded(_argument(args, kwargs, 0, "obj"), _argument(args, kwargs, 1, "f"), lambda: original(*args, **kwargs))

    return save


def _wrap_save_file(original: Any) -> Any:
    def save_file(*args: Any, **kwargs: Any) -> Any:
        tensors, path = _argument(args, kwargs, 0, "tensors"), _argument(args, kwargs, 1, "filename")
        return _guarded(tensors, path, lambda: original(*args, **kwargs))

    return save_file


def _wrap_save_bytes(original: Any) -> Any:
    def save(*args: Any, **kwargs: Any) -> Any:
        return _guarded(_argument(args, kwargs, 0, "tensors"), None, lambda: original(*args, **kwargs))

    return save


def _wrap_distributed(background: bool) -> Callable[[Any], Any]:
    def factory(original: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            where = kwargs.get("checkpoint_id")
            if where is None:
                where = getattr(kwargs.get("storage_writer"), "path", None)
            session = _session()
            if session is not None and session.rank != 0:
                where = None  # every rank looks at what it writes; the folder is one checkpoint, and one rank registers it
            return _guarded(_argument(args, kwargs, 0, "state_dict"), where, lambda: original(*args, **kwargs), expand=True,
                            background=background)

        return save

    return factory


def install(patches: Any) -> None:
    """Wrap the functions that save; those of modules that are imported later, then."""
    patches.wrap_everywhere(torch.serialization, "save", _wrap_torch_save)
    later = late.Later()
    patches.keep(later)

    def safetensors_there(module: Any) -> None:
        original = module.save_file
        patches.wrap(module, "save_file", _wrap_save_file)
        patches.wrap(module, "save", _wrap_save_bytes)
        late.rebind(patches, original, module.save_file)

    def distributed_there(module: Any) -> None:
        patches.wrap_everywhere(module, "save", _wrap_distributed(False))
        patches.wrap_everywhere(module, "async_save", _wrap_distributed(True))

    later.when_imported("safetensors.torch", safetensors_there)
    later.when_imported("torch.distributed.checkpoint.state_dict_saver", distributed_there)
