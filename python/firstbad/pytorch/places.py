"""Which tensor of the tape lies where in memory.

Views are no operators: what reads a view reads a tensor made of those that were written there last. So each storage has a list of
parts in the order in which they were written; a later part lies over the earlier ones. Storages are known by weak references, which
keep an address from being another's without keeping its memory.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch.multiprocessing.reductions import StorageWeakRef

ROOM_MAX = 1 << 27  # granules of one storage that are told apart one by one: 256 MiB of int16


class Geometry(NamedTuple):
    """Where a tensor lies in its storage, in elements of its dtype."""

    dtype: torch.dtype
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]

    @staticmethod
    def of(tensor: torch.Tensor) -> "Geometry":
        return Geometry(tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))

    def on(self, elements: torch.Tensor) -> torch.Tensor:
        """`elements`, flat and one for each place of the storage, as this tensor sees them."""
        return elements.as_strided(self.shape, self.strides, self.offset)

    def on_granules(self, base: torch.Tensor, granule: int) -> torch.Tensor:
        """The same where an element is several granules: one dimension more."""
        size = self.dtype.itemsize // granule
        return base.as_strided((*self.shape, size), (*(n * size for n in self.strides), 1), self.offset * size)

    def elements(self) -> int:
        return math.prod(self.shape)

    def room(self) -> int:
        """Elements of the storage up to the last that it holds."""
        return 0 if 0 in self.shape else self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))

    def interval(self) -> Optional[Tuple[int, int]]:
        """First byte and end, where it covers all bytes between; None where it has holes or lies over itself."""
        count = self.elements()
        if count == 0:
            return self.offset * self.dtype.itemsize, self.offset * self.dtype.itemsize
        if self.room() - self.offset != count or any(s <= 0 for n, s in zip(self.shape, self.strides) if n > 1):
            return None
        return self.offset * self.dtype.itemsize, (self.offset + count) * self.dtype.itemsize

    def holds(self, other: "Geometry") -> bool:
        """Every element of the other is surely an element of this."""
        if self.dtype != other.dtype:
            return False
        if self == other:
            return True
        mine = self.interval()
        return mine is not None and mine[0] <= other.offset * other.dtype.itemsize and \
            other.room() * other.dtype.itemsize <= mine[1]


class Part(NamedTuple):
    """A tensor of the tape, and where in its storage it was written. unwritten: it is memory that nobody wrote."""

    number: int
    geometry: Geometry
    flags: int
    unwritten: bool = False


Left = Union[None, torch.Tensor]  # indices of the elements of a part that are meant; None: all of it


@dataclasses.dataclass
class Memory:
    """What is known about one storage."""

    alive: StorageWeakRef
    parts: List[Part] = dataclasses.field(default_factory=list)
    read: Dict[Geometry, Part] = dataclasses.field(default_factory=dict)  # since the last write

    def wrote(self, part: Part) -> None:
        """`part` was written now. What it covers wholly is gone."""
        covers = part.geometry.interval()
        if covers is not None:
            self.parts = [old for old in self.parts if not _within(old.geometry, covers)]
        else:
            self.parts = [old for old in self.parts if old.geometry != part.geometry]
        self.parts.append(part)
        self.read = {part.geometry: part}

    def below(self, part: Part) -> None:
        """`part` was there before all that is known."""
        self.parts.insert(0, part)
        self.read.pop(part.geometry, None)


def _within(inner: Geometry, covers: Tuple[int, int]) -> bool:
    if inner.elements() == 0:
        return False
    size = inner.dtype.itemsize
    return covers[0] <= inner.offset * size and inner.room() * size <= covers[1]


class TooLarge(RuntimeError):
    """Parts of a storage lie over each other, and it is too large to be taken apart element by element."""


class Places:
    """All storages of one replay."""

    def __init__(self) -> None:
        self.memory: Dict[int, Memory] = {}
        self.since = 0

    def of(self, storage: torch.UntypedStorage) -> Memory:
        """What is known of a storage; nothing yet where it is new."""
        known = self.memory.get(storage._cdata)
        if known is None:
            self._tidy()
            known = self.memory[storage._cdata] = Memory(StorageWeakRef(storage))
        return known

    def knows(self, storage: torch.UntypedStorage) -> bool:
        known = self.memory.get(storage._cdata)
        return known is not None and bool(known.parts)

    def _tidy(self) -> None:
        self.since += 1
        if self.since < 512:
            return
        self.since = 0
        for key in [key for key, memory in self.memory.items() if memory.alive.expired()]:
            del self.memory[key]


def owners(memory: Memory, geometry: Geometry) -> Optional[List[Tuple[Part, Left]]]:
    """The parts that a tensor of this geometry reads, in the order in which they were written, and what of each.

    None where some of it belongs to nobody. Raises TooLarge.
    """
    if not memory.parts:
        return None
    last = memory.parts[-1]
    if last.geometry.holds(geometry):
        return [(last, None)]
    if geometry.elements() == 0:
        return [(last, None)]
    intervals = [part.geometry.interval() for part in memory.parts]
    wanted = geometry.interval()
    if wanted is not None and all(interval is not None for interval in intervals):
        return _by_intervals(memory.parts, [i for i in intervals if i is not None], wanted)
    return _by_elements(memory.parts, geometry)


def _by_intervals(parts: Sequence[Part], intervals: Sequence[Tuple[int, int]],
                  wanted: Tuple[int, int]) -> Optional[List[Tuple[Part, Left]]]:
    """The same where everything is a stretch of bytes."""
    open_: List[Tuple[int, int]] = [wanted]
    found: List[Tuple[Part, Left]] = []
    for part, (low, high) in zip(reversed(parts), reversed(intervals)):
        mine, rest = [], []
        for a, b in open_:
            x, y = max(a, low), min(b, high)
            if x >= y:
                rest.append((a, b))
                continue
            mine.append((x, y))
            rest += [(s, t) for s, t in ((a, x), (y, b)) if s < t]
        open_ = rest
        if not mine:
            continue
        size = part.geometry.dtype.itemsize
        if sum(y - x for x, y in mine) == high - low:
            found.append((part, None))
        else:  # elements of which only some bytes are meant count
            found.append((part, torch.cat([torch.arange(x // size, -(-y // size)) for x, y in sorted(mine)]).unique()))
    return None if open_ else found[::-1]


def _by_elements(parts: Sequence[Part], geometry: Geometry) -> Optional[List[Tuple[Part, Left]]]:
    all_of = [geometry] + [part.geometry for part in parts]
    granule = math.gcd(*(g.dtype.itemsize for g in all_of))
    size = max(g.room() * g.dtype.itemsize for g in all_of) // granule
    if size > ROOM_MAX or len(parts) > 30_000:
        raise TooLarge(f"{len(parts)} tensors lie over each other in {size * granule} bytes of memory")
    owner = torch.full((max(size, 1),), -1, dtype=torch.int16)
    for k, part in enumerate(parts):
        part.geometry.on_granules(owner, granule).fill_(k)
    wanted = torch.zeros_like(owner, dtype=torch.bool)
    geometry.on_granules(wanted, granule).fill_(True)
    if bool((geometry.on_granules(owner, granule) < 0).any()):
        return None
    found: List[Tuple[Part, Left]] = []
    for k in torch.unique(geometry.on_granules(owner, granule)).tolist():
        part = parts[k]
        mine = ((part.geometry.on_granules(owner, granule) == k) & part.geometry.on_granules(wanted, granule)).any(-1)
        if bool(mine.all()):
            found.append((part, None))
        else:
            found.append((part, part.geometry.on(torch.arange(part.geometry.room()))[mine].unique()))
    return found
