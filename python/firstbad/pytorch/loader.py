"""Which samples of the data set are in a batch, and batches without those that are to be left out.

torch's DataLoader asks its sampler for indices (_next_index) and gives out a batch (__next__) somewhere else and later: workers
fetch ahead, and with in_order=False they overtake each other. `install` wraps both on the base class of its iterators; what
frameworks put around a DataLoader (accelerate's DataLoaderShard and the like) iterates over the same ones. Loaders of another make
are not seen.

A batch is known again at the root by its memory: the tensors that reach it are those that were given out, or rows of them. Where
they were copied on the way (to a device, to another format), the batch is known when only one was given out since the last root
forward and it has as many rows. Else the samples are not known, and nobody is told a number.
"""
from __future__ import annotations

import collections
import dataclasses
import os
import threading
import weakref
from typing import Any, Deque, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .batch import Field
from .patch import guest
from .trees import walk

KEPT = 64  # batches that are remembered, by weak references: their memory is not kept
TENSORS_MAX = 64  # of one batch


@dataclasses.dataclass
class Fetched:
    """A batch that was given out. number: 0-based running number in this process. rows: of its tensors, the first dimension."""

    number: int
    indices: Optional[List[int]]
    tensors: Dict[int, Tuple[StorageWeakRef, int, int, int]]  # storage -> (reference, offset, stride of a row, rows)
    rows: Set[int]
    used: bool = False


@dataclasses.dataclass
class Known:
    """The batch behind a root forward. indices: the dataset index of each row."""

    number: int
    indices: Optional[List[int]]


class _Iterator:
    """What is remembered of one iterator of a DataLoader."""

    def __init__(self) -> None:
        self.asked: Dict[int, Any] = {}  # number of the task -> indices
        self.last: Any = None  # without workers: what was asked for last
        self.last_kept: Any = None  # an index that was not left out


class Ledger:
    """Batches that were given out in this process, newest last."""

    def __init__(self) -> None:
        self.batches: Deque[Fetched] = collections.deque(maxlen=KEPT)
        self.iterators: "weakref.WeakKeyDictionary[Any, _Iterator]" = weakref.WeakKeyDictionary()
        self.count = 0
        self.replaced = 0  # samples that were left out
        self.dropped = 0  # batches of which nothing was left
        self.lock = threading.Lock()

    def of(self, iterator: Any) -> _Iterator:
        mine = self.iterators.get(iterator)
        if mine is None:
            mine = self.iterators[iterator] = _Iterator()
        return mine


_ledger = Ledger()


def reset() -> None:
    """Forget every batch: for tests, and after a fork."""
    global _ledger, _left_out
    _ledger, _left_out = Ledger(), None


# ---- which batch is this ---------------------------------------------------------------------------------------------------------

def _reference(tensor: torch.Tensor) -> Optional[Tuple[int, Tuple[StorageWeakRef, int, int, int]]]:
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or not tensor.dim() or tensor.is_meta:
        return None
    reference = StorageWeakRef(tensor.untyped_storage())
    return int(reference.cdata), (reference, int(tensor.storage_offset()), int(tensor.stride(0)), int(tensor.shape[0]))


def _as_ints(asked: Any) -> Optional[List[int]]:
    """The indices of a batch as plain numbers; None where they are none (an iterable data set, keys)."""
    if asked is None:
        return None
    many = asked if isinstance(asked, (list, tuple)) else [asked]
    if isinstance(asked, torch.Tensor) and asked.dim():
        many = asked.tolist()
    out = []
    for one in many:
        if isinstance(one, bool) or not hasattr(one, "__index__"):
            return None
        try:
            out.append(int(one.__index__()))
        except TypeError:  # a tensor of floats has the method too
            return None
    return out


@guest("loader")
def _given_out(data: Any, asked: Any) -> None:
    tensors: Dict[int, Tuple[StorageWeakRef, int, int, int]] = {}
    rows = set()
    for count, (_, tensor) in enumerate(walk(data)):
        if count >= TENSORS_MAX:
            break
        found = _reference(tensor)
        if found is not None:
            tensors.setdefault(*found)
            rows.add(found[1][3])
    with _ledger.lock:
        _ledger.batches.append(Fetched(_ledger.count, _as_ints(asked), tensors, rows))
        _ledger.count += 1


def match(fields: Sequence[Field]) -> Optional[Known]:
    """The batch that these fields came from; None where none can be named. Batches before it are used up. Cost: 5 us."""
    ledger = _ledger
    if not ledger.batches:
        return None
    for field in fields:
        found = _reference(field.tensor)
        if found is None:
            continue
        storage, (_, offset, stride, rows) = found
        for batch in reversed(ledger.batches):
            known = batch.tensors.get(storage)
            if known is not None and not known[0].expired():
                _use(batch)
                return Known(batch.number, _slice(batch, known, offset, stride, rows))
    fresh = [batch for batch in ledger.batches if not batch.used]
    for batch in fresh:
        batch.used = True
    if len(fresh) != 1 or not fields:
        return None
    batch = fresh[0]
    rows_of = {int(field.tensor.shape[0]) for field in fields if field.tensor.dim()}
    fits = batch.indices is not None and len(batch.indices) in rows_of and len(batch.indices) in batch.rows
    return Known(batch.number, batch.indices if fits else None)


def gave(tensor: torch.Tensor) -> bool:
    """A DataLoader of this process gave out this memory, so that nothing of the program computed it. Cost: 2 us."""
    found = _reference(tensor)
    if found is None:
        return False
    return any(known is not None and not known[0].expired() for known in (batch.tensors.get(found[0]) for batch in _ledger.batches))


def _use(batch: Fetched) -> None:
    for other in _ledger.batches:
        other.used = True
        if other is batch:
            return


def _slice(batch: Fetched, known: Tuple[StorageWeakRef, int, int, int], offset: int, stride: int, rows: int) -> Optional[List[int]]:
    """The indices of the rows that a view of a batch's tensor has."""
    _, base, step, whole = known
    if batch.indices is None or len(batch.indices) != whole or not step or (stride != step and rows > 1):
        return None
    first, rest = divmod(offset - base, step)
    if rows == 1 and rest:
        return None
    if first < 0 or first + rows > whole:
        return None
    return batch.indices[first:first + rows] if rest == 0 or stride == step else None


# ---- leaving samples out ---------------------------------------------------------------------------------------------------------

_left_out: Optional[Set[int]] = None  # of FIRSTBAD_LEAVE_OUT; what the library says of the same list is what counts


def left_out() -> Set[int]:
    """The ids of FIRSTBAD_LEAVE_OUT: numbers with commas, blanks or line ends between them, or @FILE. A DataLoader fetches its
    first batches before there is a run, so the list is read here as well; one that is no list is refused by fb_run_open, and is
    empty here."""
    global _left_out
    if _left_out is None:
        text = os.environ.get("FIRSTBAD_LEAVE_OUT", "")
        try:
            if text.startswith("@"):
                with open(text[1:], encoding="ascii") as file:
                    text = file.read()
            _left_out = {int(word) for word in text.replace(",", " ").split()}
        except (OSError, ValueError, UnicodeDecodeError):
            _left_out = set()
    return _left_out


def _world() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


_FAILED = object()


@guest("leave_out", _FAILED)
def _without(mine: _Iterator, asked: Any) -> Any:
    """The indices to fetch: each that is left out becomes another of its batch, the same on every rank that has this batch. None:
    nothing of it is left."""
    unwanted = left_out()
    numbers = _as_ints(asked)
    if not unwanted or numbers is None:
        return asked
    bad = {at for at, number in enumerate(numbers) if number in unwanted}
    if not isinstance(asked, (list, tuple)):
        if not bad:
            mine.last_kept = asked
            return asked
        _ledger.replaced += 1
        return mine.last_kept if mine.last_kept is not None and _world() > 1 else None
    kept = [one for at, one in enumerate(asked) if at not in bad]
    if kept:
        mine.last_kept = kept[-1]
    if not bad:
        return asked
    _ledger.replaced += len(bad)
    if not kept and mine.last_kept is not None and _world() > 1:
        kept = [mine.last_kept]  # a rank that took a further batch would be the first to run out, and the others would wait
    if not kept:
        return None
    return type(asked)(kept[at % len(kept)] if at in bad else one for at, one in enumerate(asked))


def coverage_line() -> Optional[str]:
    """What was left out so far, for coverage; None: nothing."""
    if not _ledger.replaced:
        return None
    more = f", {_ledger.dropped:,} batches of them alone were passed over" if _ledger.dropped else ""
    return f"samples left out by FIRSTBAD_LEAVE_OUT: {_ledger.replaced:,} times, each replaced by another of its batch{more}"


# ---- the wrappers ----------------------------------------------------------------------------------------------------------------

@guest("loader")
def _asked(iterator: Any, asked: Any) -> None:
    mine = _ledger.of(iterator)
    task = getattr(iterator, "_send_idx", None)
    if task is None:
        mine.last = asked
    else:
        mine.asked[task] = asked


@guest("loader", ())
def _tasks(iterator: Any) -> Sequence[Any]:
    """Tasks that workers have; () without workers."""
    return tuple(getattr(iterator, "_task_info", ()))


@guest("loader")
def _taken(iterator: Any, before: Sequence[Any]) -> Any:
    """The indices of the batch that was just given out; None where that cannot be told."""
    mine = _ledger.of(iterator)
    if not hasattr(iterator, "_task_info"):
        asked, mine.last = mine.last, None
        return asked
    gone = [task for task in before if task not in iterator._task_info]
    out = mine.asked.get(gone[0]) if len(gone) == 1 else None
    for task in gone:
        mine.asked.pop(task, None)
    return out


def _wrap_next_index(original: Any) -> Any:
    def _next_index(self: Any) -> Any:
        asked = original(self)
        if left_out() and torch.is_grad_enabled():  # an evaluation has data of its own, with other samples under the same numbers
            mine = _ledger.of(self)
            while True:
                kept = _without(mine, asked)
                if kept is not None or asked is None:
                    asked = asked if kept is _FAILED else kept
                    break
                _ledger.dropped += 1
                asked = original(self)  # StopIteration is the loader's own end
        _asked(self, asked)
        return asked

    return _next_index


def _wrap_next(original: Any) -> Any:
    def __next__(self: Any) -> Any:
        before = _tasks(self)
        data = original(self)
        _given_out(data, _taken(self, before))
        return data

    return __next__


def install(patches: Any) -> None:
    """Wrap the iterators of DataLoader. patches: patch.Patches."""
    import torch.utils.data.dataloader as module  # torch itself has imported it

    patches.wrap(module._BaseDataLoaderIter, "_next_index", _wrap_next_index)
    patches.wrap(module._BaseDataLoaderIter, "__next__", _wrap_next)
