"""Is what a program saves a checkpoint, and which tensors in it are its training state.

Tensors are known by their memory: parameters, buffers and moments that the session has names for. Copies (a state_dict moved to the
host, a gathered shard) are known by name and shape. Everything else in a file (metrics, replay memory, a best loss of Inf) is
nobody's state, and nothing is refused for it.
"""
from __future__ import annotations

import collections.abc
import dataclasses
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from .. import _abi as abi
from . import views
from .names import clean
from .registry import optimizers as known_optimizers

DEPTH_MAX = 12
NODES_MAX = 1_000_000


@dataclasses.dataclass
class Part:
    """One tensor of a saved object. role: abi.ROLE_PARAMETER, ROLE_MOMENT, ROLE_BUFFER, ROLE_EMA; 0: no state."""

    path: str
    tensor: torch.Tensor
    role: int = 0
    module: str = ""
    name: str = ""
    constant: bool = False  # a buffer that training was not seen to change, or a parameter that is not trained


def tensors_in(thing: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    """(path, tensor) of what torch.save would write: in containers, modules (whole ones too) and optimizers."""
    count = 0
    seen = set()
    stack: List[Tuple[str, Any, int]] = [("", thing, 0)]
    while stack:
        path, one, depth = stack.pop()
        count += 1
        if count > NODES_MAX:
            return
        if isinstance(one, torch.Tensor):
            yield path, one
            continue
        if depth > DEPTH_MAX or isinstance(one, (str, bytes, int, float, bool, type(None))) or id(one) in seen:
            continue
        seen.add(id(one))
        below: List[Tuple[str, Any]] = []
        if isinstance(one, torch.nn.Module):
            below = list(one.named_parameters(remove_duplicate=False)) + list(one.named_buffers(remove_duplicate=False))
        elif isinstance(one, torch.optim.Optimizer):
            below = [("state", list(one.state.values()))]
        elif isinstance(one, collections.abc.Mapping):
            below = [(str(key), value) for key, value in one.items()]
        elif isinstance(one, (list, tuple)):
            below = [(str(i), value) for i, value in enumerate(one)]
        elif callable(getattr(one, "state_dict", None)) and not isinstance(one, type):
            continue  # a Stateful of torch.distributed.checkpoint: `expanded` opens those
        stack.extend((f"{path}.{key}" if path else key, value, depth + 1) for key, value in reversed(below))


def expanded(thing: Any) -> Any:
    """A dict whose values may be Stateful objects, as torch.distributed.checkpoint takes them: those replaced by their
    state_dict()."""
    if not isinstance(thing, collections.abc.Mapping):
        return thing
    out = {}
    for key, value in thing.items():
        known = isinstance(value, (torch.nn.Module, torch.optim.Optimizer))
        out[key] = value.state_dict() if not known and callable(getattr(value, "state_dict", None)) else value
    return out


def _memory(tensor: torch.Tensor) -> Tuple[int, int]:
    """(address, elements) of what a tensor holds; (0, 0) where it holds nothing."""
    try:
        memory = views.memory_of(tensor.detach())
        return (memory.data_ptr(), memory.numel()) if memory is not None and memory.numel() else (0, 0)
    except (RuntimeError, NotImplementedError, TypeError):
        return 0, 0  # fake, functional, a subclass without memory


class State:
    """The training state of a session at this moment: where it is, and what it is called."""

    def __init__(self, session: Any) -> None:
        self.at: Dict[Tuple[int, int], Tuple[int, str, str, bool]] = {}  # memory -> role, module, name, constant
        self.called: Dict[Tuple[str, Tuple[int, ...]], Tuple[int, str, str, bool]] = {}  # (clean path, shape) -> the same
        self.moment_shapes: Dict[Tuple[str, Tuple[int, ...]], None] = {}
        self.parameters = 0
        names = session.names
        moved = getattr(session.buffers, "moved", {})
        for buffer, module, name, _ in list(names.buffers.values()):
            if buffer.dtype in views.FLOATS:
                self._add(buffer, abi.ROLE_BUFFER, module, name, id(buffer) not in moved)
        from .state import moments

        for optimizer in known_optimizers.alive():
            for parameter, key, tensor in moments(optimizer):
                place = names.places.get(id(parameter))
                if place is not None and tensor.dtype in views.FLOATS and tensor.dim():
                    self._add(tensor, abi.ROLE_MOMENT, place.module, f"{place.name}.{key}", False)
                    self.moment_shapes[key, tuple(tensor.shape)] = None
        for place in list(names.places.values()):
            self.parameters += 1
            self._add(place.tensor, abi.ROLE_PARAMETER, place.module, place.name, not place.tensor.requires_grad)
            for other in place.also:
                self.called.setdefault((other, tuple(place.tensor.shape)), (abi.ROLE_PARAMETER, place.module, place.name, False))

    def _add(self, tensor: torch.Tensor, role: int, module: str, name: str, constant: bool) -> None:
        entry = (role, module, name, constant)
        key = _memory(tensor)
        if key[0]:
            self.at[key] = entry
        if role != abi.ROLE_MOMENT:
            self.called[f"{module}.{name}" if module else name, tuple(tensor.shape)] = entry

    def parts(self, thing: Any) -> List[Part]:
        """The tensors of a saved object that can hold NaN, each with what it is."""
        out = []
        for path, tensor in tensors_in(thing):
            if tensor.dtype not in views.FLOATS or tensor.is_quantized:
                continue
            out.append(self._part(path, tensor))
        return out

    def _part(self, path: str, tensor: torch.Tensor) -> Part:
        known = self.at.get(_memory(tensor))
        if known is not None:
            return Part(path, tensor, *known)
        shape = tuple(tensor.shape)
        names = clean(path).split(".")
        for first in range(min(len(names), 6)):  # "model.h.0.weight", "state.ema.h.0.weight"
            known = self.called.get((".".join(names[first:]), shape))
            if known is not None:
                ema = known[0] == abi.ROLE_PARAMETER and any("ema" in word or "shadow" in word for word in names[:first])
                return Part(path, tensor, abi.ROLE_EMA if ema else known[0], known[1], known[2], known[3])
        if tensor.dim() and (names[-1], shape) in self.moment_shapes and "state" in names:
            return Part(path, tensor, abi.ROLE_MOMENT, ".".join(names[:-1]), names[-1])
        return Part(path, tensor)


def is_checkpoint(thing: Any, parts: List[Part], state: State) -> bool:
    """A container of tensors, at least half of which are training state, or that has at least half of the parameters."""
    if isinstance(thing, torch.Tensor) or not parts:
        return False
    mine = [part for part in parts if part.role]
    parameters = {(part.module, part.name) for part in mine if part.role == abi.ROLE_PARAMETER}
    return bool(mine) and (2 * len(mine) >= len(parts) or 2 * len(parameters) >= max(1, state.parameters))


def first_odd(parts: List[Part]) -> Optional[Part]:
    """The first tensor that is no training state, or never changes, and is not finite. Cost: one read of those."""
    from .. import _leaves

    for part in parts:
        if part.role and not part.constant:
            continue
        leaf = _leaves.look(part.tensor)
        if leaf is not None and not leaf.why and (leaf.view is not None or leaf.tensor is not None) and _leaves.count(leaf).bad:
            return part
    return None
