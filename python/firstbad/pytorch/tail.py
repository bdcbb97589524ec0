"""What the recorder needs to follow tensors outside of the roots: a dispatch mode, and numbers for tensors that it does not keep
alive."""
from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class Tail(TorchDispatchMode):
    """Hands each operator to the recorder while `on`."""

    def __init__(self, recorder: Any) -> None:
        super().__init__()
        self.recorder = recorder
        self.on = self.pushed = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # code that was compiled stays compiled

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its whole compiler with the first operator: 2 s, in a program that compiles nothing

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.on:
            return func(*args, **kwargs)
        return self.recorder._operator(func, args, kwargs)


class Values:
    """Which number a tensor has. A tensor object is known by itself, and, when torch made a new object for it, by where it lies."""

    def __init__(self) -> None:
        self.count = 0
        self.objects: Dict[int, Tuple[Any, int]] = {}
        self.places: Dict[Any, List[Tuple[StorageWeakRef, int, bool]]] = {}

    @staticmethod
    def place(tensor: torch.Tensor) -> Any:
        if tensor.layout != torch.strided:
            return None
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None
        return storage._cdata, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()

    def made(self, tensor: torch.Tensor, grad: bool) -> int:
        """A tensor that a step made."""
        number = self.count
        self.count += 1
        self.objects[id(tensor)] = (weakref.ref(tensor), number)
        place = self.place(tensor)
        if place is not None:
            # The weak reference keeps the address from being given to another storage, not the memory.
            self.places.setdefault(place, []).append((StorageWeakRef(tensor.untyped_storage()), number, grad))
        return number

    def made_object(self, tensor: torch.Tensor) -> bool:
        """Did a step make this very object?"""
        known = self.objects.get(id(tensor))
        return known is not None and known[0]() is tensor

    def find(self, tensor: torch.Tensor) -> Optional[int]:
        known = self.objects.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        place = self.place(tensor)
        found = [entry for entry in self.places.get(place, ()) if not entry[0].expired()] if place is not None else []
        if not found:
            return None
        return next((number for _, number, grad in reversed(found) if grad == tensor.requires_grad), found[-1][1])

    def tracks(self, tensor: torch.Tensor, number: int) -> bool:
        """The value of this number may have a gradient, as far as is known, and `tensor`, which lies where it lies, has none."""
        known = self.objects.get(id(tensor))
        if tensor.requires_grad or (known is not None and known[0]() is tensor):
            return False
        return any(grad for _, of, grad in self.places.get(self.place(tensor), ()) if of == number)

    def forget(self, tensor: torch.Tensor) -> None:
        self.objects.pop(id(tensor), None)
        place = self.place(tensor)
        if place is not None:
            self.places.pop(place, None)


_schemas: Dict[Any, Tuple[List[str], Set[str], bool]] = {}


def about(func: Any) -> Tuple[List[str], Set[str], bool]:
    """(names of the arguments, those that are written to, whether it draws random numbers) of an operator."""
    known = _schemas.get(func)
    if known is None:
        arguments = func._schema.arguments
        known = _schemas[func] = (
            [a.name for a in arguments],
            {a.name for a in arguments if a.alias_info and a.alias_info.is_write},
            torch.Tag.nondeterministic_seeded in func.tags,
        )
    return known


def flat(args: Any, kwargs: Dict[str, Any]) -> List[torch.Tensor]:
    """Tensors among the arguments of an operator, which nests lists and nothing else."""
    found: List[torch.Tensor] = []
    for given in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(given, torch.Tensor):
            found.append(given)
        elif isinstance(given, (list, tuple)):
            found += [t for t in given if isinstance(t, torch.Tensor)]
    return found


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides where that is cheap, without history."""
    with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
        data = tensor.detach()
        if data.layout != torch.strided or type(data) is not torch.Tensor:
            return data.clone()
        room = 1 + sum((n - 1) * s for n, s in zip(data.shape, data.stride())) if data.numel() else 0
        if not data.numel() or room > 4 * data.numel() or any(s < 0 for s in data.stride()):
            return data.clone()
        flat = data.as_strided((room,), (1,), data.storage_offset()).clone()
        return flat.as_strided(data.shape, data.stride(), 0)
