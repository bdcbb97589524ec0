"""What an update changes besides gradients: buffers that forward moves, and the state of optimizers. Looked at, kept, put back."""
from __future__ import annotations

import os
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _native
from . import sharded, views
from .calls import Snapshot
from .names import Names

BUFFERS_FIRST_MAX = 64 << 20  # bytes of buffers that are copied before it is known which of them forward changes
LEARN_UPDATES = 2


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal to the last bit, NaN included."""
    a, b = sharded.local(a), sharded.local(b)  # comparing parts that are spread over ranks would be a collective
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.device.type != "cpu" or not (a.is_contiguous() and b.is_contiguous()):
        return bool(torch.equal(a, b)) or bool(((a == b) | ((a != a) & (b != b))).all())
    return bool(torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)))


class Buffers:
    """Copies of buffers from before the forwards of an update.

    Which buffers forward changes is learnt in the first updates, by comparing all of them with their copies: batch norm moves its
    statistics without raising their version. From then on only those are copied. Cost: one copy of them a forward, until the first
    backward of the update.
    """

    def __init__(self) -> None:
        self.moved: Dict[int, "weakref.ref[torch.Tensor]"] = {}
        self._seen: Dict[int, int] = {}  # id(root) -> updates in which it was looked at whole
        self._left: List[Tuple[torch.Tensor, int]] = []  # too large to be copied: (live, version)

    def enter(self, root: torch.nn.Module, known: Snapshot) -> Snapshot:
        """Before a forward of `root`: copies of what it is known to change, or may change. known: those that are there already, and
        count because a backward of this update came after them."""
        out: Snapshot = {}
        learning = self._seen.get(id(root), 0) < LEARN_UPDATES
        if not learning and not self.moved:
            return out
        room = BUFFERS_FIRST_MAX
        for buffer in root.buffers():
            key = id(buffer)
            moved = key in self.moved and self.moved[key]() is buffer
            if key in known or buffer.is_meta or not (moved or learning):
                continue
            room -= buffer.numel() * buffer.element_size()
            if room < 0 and not moved:
                self._left.append((buffer, buffer._version))
                continue
            with torch.no_grad():
                out[key] = (buffer, buffer.detach().clone(), buffer._version)
        return out

    def learn(self, roots: Sequence[torch.nn.Module], before: Snapshot) -> bool:
        """At the end of an update: which buffers did forward change? True: one changed that was too large to be copied."""
        learning = False
        for root in roots:
            seen = self._seen.get(id(root), 0)
            if seen < LEARN_UPDATES:
                self._seen[id(root)] = seen + 1
                learning = True
        missed = False
        if learning:
            for key, (live, copy, version) in before.items():
                if key not in self.moved and (live._version != version or not same_bits(live, copy)):
                    self.moved[key] = weakref.ref(live)
            for live, version in self._left:
                if live._version != version:
                    self.moved[id(live)] = weakref.ref(live)
                    missed = True
        self._left.clear()
        return missed

    @staticmethod
    def put_back(before: Snapshot) -> None:
        """Every buffer is what it was before the update's first forward."""
        with torch.no_grad():
            for live, copy, version in before.values():
                if live._version != version or not same_bits(live, copy):
                    live.data.copy_(copy)  # without raising its version: a graph that lives on may have saved it


# ---- the owned state -------------------------------------------------------------------------------------------------------------


def moments(optimizer: Any) -> List[Tuple[torch.Tensor, str, torch.Tensor]]:
    """(parameter, key, tensor) of what an optimizer keeps for its parameters."""
    out = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            kept = optimizer.state.get(parameter)
            if isinstance(kept, dict):
                out += [(parameter, key, value) for key, value in kept.items() if isinstance(value, torch.Tensor)]
    return out


class Owned:
    """Parameters and moments, as fb_run_own is told: the memory that a withheld update must leave alone, and that no bad number
    may be in before it. Buffers are neither: forward moves some of them, and masks of -Inf are others."""

    def __init__(self) -> None:
        self.rows: List[Tuple[int, Any, torch.Tensor]] = []  # (role, place, tensor); kept alive while the library may read them
        self._addresses: List[Tuple[int, int]] = []
        self._versions: List[int] = []
        self.table: Optional[views.Table] = None
        self.size = 0  # bytes
        self.watch = False  # an update was withheld, and the state must still be what it was

    def _gather(self, names: Names, optimizers: Sequence[Any]) -> List[Tuple[int, Any, torch.Tensor]]:
        rows: List[Tuple[int, Any, torch.Tensor]] = []
        seen = set()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    place = names.places.get(id(parameter))
                    if place is not None and id(parameter) not in seen:
                        seen.add(id(parameter))
                        rows.append((abi.ROLE_PARAMETER, place, parameter))
            for parameter, key, tensor in moments(optimizer):
                place = names.places.get(id(parameter))
                if place is not None:
                    role = abi.ROLE_MOMENT if tensor.dtype in views.FLOATS and tensor.numel() > 1 else abi.ROLE_COUNTER
                    rows.append((role, (place.module, f"{place.name}.{key}"), tensor))
        rows = [(role, place, sharded.local(tensor)) for role, place, tensor in rows]
        return [row for row in rows if _in_host_memory(row[2])]

    def refresh(self, run: Any, names: Names, optimizers: Sequence[Any]) -> None:
        """Between steps: tell the library where the state is, where that changed. Cost: a look at each address.

        After a withheld update nobody may have touched the state. What the program itself wrote since (a checkpoint that it loaded)
        is seen by the versions of the tensors, and is no fault: it is owned anew, and the proof of that skip is given up.
        """
        rows = self._gather(names, optimizers)
        addresses = [(tensor.data_ptr(), tensor.numel()) for _, _, tensor in rows]
        if self.table is not None and addresses == self._addresses and not (self.watch and self._touched()):
            self.watch = False
            self.rows = rows
            return
        self.watch = False
        sites = []
        for role, place, tensor in rows:
            if role == abi.ROLE_PARAMETER:
                sites.append(place.parameter)
            else:
                sites.append(names.site(run, role, place[0], place[1], tuple(tensor.shape)))
        table = views.Table(sites)
        table.update([tensor for _, _, tensor in rows])
        lib = _native.lib()
        if self.table is not None:
            _native.call(lib.fb_run_own, run, None, 0)
        _native.call(lib.fb_run_own, run, table.array, len(rows))
        self.rows, self._addresses, self.table = rows, addresses, table
        self.size = sum(tensor.numel() * tensor.element_size() for _, _, tensor in rows)

    def mark(self) -> None:
        """The update was withheld, and its optimizers are done: remember the versions."""
        self.watch = True
        self._versions = [tensor._version for _, _, tensor in self.rows]

    def _touched(self) -> bool:
        return [tensor._version for _, _, tensor in self.rows] != self._versions

    def disown(self, run: Any) -> None:
        """The memory may go away from here on."""
        if self.table is not None:
            _native.call(_native.lib().fb_run_own, run, None, 0)
        self.rows, self._addresses, self.table, self.size = [], [], None, 0


def _in_host_memory(tensor: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return False
    return tensor.device.type == "cpu" and tensor.dtype in views.DTYPES and tensor.is_contiguous() and tensor.numel() > 0 \
        and tensor.data_ptr() != 0 and not tensor.is_quantized


# ---- held back -------------------------------------------------------------------------------------------------------------------

HOLD_BYTES_MAX = int(os.environ.get("FIRSTBAD_HOLD_BYTES", str(4 << 30)))


class Held:
    """The state of one optimizer before its step: parameters that have a gradient, their moments, the groups' own numbers."""

    def __init__(self, optimizer: Any, everything: bool = False) -> None:
        self.optimizer = optimizer
        self.parameters: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self.state: Dict[Any, Any] = {}
        self.groups = [{key: _kept(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None or everything:
                        self.parameters.append((parameter, parameter.detach().clone()))
            wanted = {id(parameter) for parameter, _ in self.parameters}
            for key, kept in list(optimizer.state.items()):
                if not isinstance(key, torch.Tensor) or id(key) in wanted:
                    self.state[key] = {n: _kept(value) for n, value in kept.items()} if isinstance(kept, dict) else _kept(kept)
        self.wanted = wanted
        self.swapped: Optional[Any] = None

    @staticmethod
    def size(optimizer: Any) -> int:
        """Bytes that it would take."""
        total = 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    kept = optimizer.state.get(parameter)
                    held = sum(v.numel() * v.element_size() for v in kept.values() if isinstance(v, torch.Tensor)) \
                        if isinstance(kept, dict) else 0
                    total += parameter.numel() * parameter.element_size() + held
        return total

    def written(self) -> List[Tuple[str, torch.Tensor, torch.Tensor]]:
        """("" or a moment's key, parameter, tensor as the step left it) of all that it may have written."""
        out: List[Tuple[str, torch.Tensor, torch.Tensor]] = [("", parameter, parameter) for parameter, _ in self.parameters]
        for parameter, key, value in moments(self.optimizer):
            if id(parameter) in self.wanted and value.dtype in views.FLOATS and value.numel() > 1:
                out.append((key, parameter, value))
        return out

    def put_back(self) -> None:
        """As if the step had never been."""
        with torch.no_grad():
            for parameter, copy in self.parameters:
                if not same_bits(parameter.detach(), copy):
                    parameter.data.copy_(copy)
            state = self.optimizer.state
            for key in list(state.keys()):
                if isinstance(key, torch.Tensor) and id(key) not in self.wanted:
                    continue
                if key not in self.state:
                    del state[key]
                    continue
                state[key] = _restored(state[key], self.state[key])
            for key, kept in self.state.items():
                if key not in state:
                    state[key] = _restored({}, kept)
            for group, kept in zip(self.optimizer.param_groups, self.groups):
                for name in [name for name in group if name != "params" and name not in kept]:
                    del group[name]
                for name, value in kept.items():
                    group[name] = _restored(group.get(name), value)

    def swap(self) -> None:
        """Take the step back and keep what it made; or, called again, put that in place after all."""
        made = Held(self.optimizer, True) if self.swapped is None else None
        if made is not None:
            made.parameters = [(p, c) for p, c in made.parameters if id(p) in self.wanted]
            self.put_back()
            self.swapped = made
        else:
            self.swapped.put_back()  # type: ignore[union-attr]
            self.swapped = None


def _kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list):
        return [_kept(v) for v in value]
    return value


def _restored(live: Any, kept: Any) -> Any:
    """`kept`, in the tensors and lists that are there already, so that who holds them sees it."""
    if isinstance(kept, dict):
        out = live if isinstance(live, dict) else {}
        for name in [name for name in out if name not in kept]:
            del out[name]
        for name, value in kept.items():
            out[name] = _restored(out.get(name), value)
        return out
    if isinstance(kept, torch.Tensor):
        if isinstance(live, torch.Tensor) and live.shape == kept.shape and live.dtype == kept.dtype and live.device == kept.device:
            with torch.no_grad():
                live.data.copy_(kept)
            return live
        return kept
    if isinstance(kept, list):
        return [_restored(None, v) for v in kept]
    return kept
