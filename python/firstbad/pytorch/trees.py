"""Tensors inside of what programs hand around: tuples, dicts, dataclasses, the outputs of transformers, any object with attributes.

torch's pytree knows containers that were registered, and takes everything else for one leaf. Models of strangers return objects
that nobody registered (distributions, dataclasses), so objects are walked by their attributes here, to a depth and a count that
end.
"""
from __future__ import annotations

import collections.abc
import copy
import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

DEPTH_MAX = 8  # below that everything is one leaf
COUNT_MAX = 100_000  # leaves of one tree
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size, torch.Generator,
          torch.nn.Module, type, torch.layout, torch.memory_format, range, slice)


def _children(tree: Any) -> List[Tuple[str, Any]]:
    """(key, child) of a container, in an order that is the same each time; none for a leaf."""
    if isinstance(tree, torch.Tensor) or isinstance(tree, _PLAIN):
        return []
    if isinstance(tree, collections.abc.Mapping):
        return [(str(key), child) for key, child in tree.items()]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(zip(tree._fields, tree))
    if isinstance(tree, (tuple, list)):
        return [(str(i), child) for i, child in enumerate(tree)]
    if dataclasses.is_dataclass(tree):
        return [(field.name, getattr(tree, field.name, None)) for field in dataclasses.fields(tree)]
    if callable(tree) or not hasattr(tree, "__dict__"):
        return []
    return [(name, child) for name, child in vars(tree).items() if not callable(child) or isinstance(child, torch.Tensor)]


def walk(tree: Any, path: str = "", depth: int = 0, seen: Any = None) -> Iterator[Tuple[str, torch.Tensor]]:
    """(path, tensor) of every tensor in `tree`: ("inputs.input_ids", ...). An object that holds itself is walked once."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
        return
    if depth >= DEPTH_MAX:
        return
    seen = {} if seen is None else seen
    children = _children(tree)
    if not children or id(tree) in seen or len(seen) > COUNT_MAX:
        return
    seen[id(tree)] = tree  # kept alive, or its id would be another's
    for key, child in children:
        yield from walk(child, f"{path}.{key}" if path else key, depth + 1, seen)


def tensors(tree: Any) -> List[torch.Tensor]:
    """The tensors of `tree` in the order of `walk`."""
    return [tensor for _, tensor in walk(tree)]


def rebuild(tree: Any, change: Callable[[Any], Any], depth: int = 0) -> Any:
    """The same tree with change(leaf) in the place of each leaf; containers on the way are copied, the caller's stay as they
    are."""
    if isinstance(tree, torch.Tensor) or isinstance(tree, _PLAIN) or depth >= DEPTH_MAX:
        return change(tree)
    if isinstance(tree, tuple):
        made = [rebuild(child, change, depth + 1) for child in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else tuple(made)
    if isinstance(tree, list):
        return [rebuild(child, change, depth + 1) for child in tree]
    if type(tree) is dict:
        return {key: rebuild(child, change, depth + 1) for key, child in tree.items()}
    children = _children(tree)
    if not children:
        return change(tree)
    return _rebuild_object(tree, children, change, depth)


def _rebuild_object(tree: Any, children: List[Tuple[str, Any]], change: Callable[[Any], Any], depth: int) -> Any:
    """An object: its shallow copy, with new attributes. One that refuses to be copied is handed on as it is."""
    try:
        out = copy.copy(tree)
        if isinstance(tree, collections.abc.MutableMapping):
            for key, child in list(tree.items()):
                out[key] = rebuild(child, change, depth + 1)
        if hasattr(tree, "__dict__") and not isinstance(tree, dict):
            for name, child in list(vars(tree).items()):
                object.__setattr__(out, name, rebuild(child, change, depth + 1))
        elif not isinstance(tree, collections.abc.Mapping):
            for name, child in children:
                object.__setattr__(out, name, rebuild(child, change, depth + 1))
        return out
    except (TypeError, AttributeError, ValueError, RuntimeError):
        return change(tree)


class Attributes:
    """What Python objects (modules, caches, the program's own) hold, so that it can be put back.

    Attributes are kept by reference, lists and dicts and sets in them as shallow copies: a forward that counts, appends or caches
    is undone. Tensors that it changes in place are not: those are the buffers' and the batch's, which are copied elsewhere.
    """

    _COPIED = (list, dict, set, collections.deque)

    def __init__(self) -> None:
        self.kept: List[Tuple[Any, Dict[str, Any], Dict[str, Any]]] = []
        self.containers: List[Tuple[Any, Any]] = []

    def keep_container(self, container: Any) -> None:
        """A list, dict or set of the caller's."""
        self.containers.append((container, copy.copy(container)))

    def keep(self, thing: Any) -> None:
        """`thing`, an object with attributes."""
        attributes = getattr(thing, "__dict__", None)
        if not isinstance(attributes, dict):
            return
        held = {name: copy.copy(value) for name, value in attributes.items() if type(value) in self._COPIED}
        self.kept.append((attributes, dict(attributes), held))

    def put_back(self) -> None:
        for attributes, before, held in self.kept:
            if attributes.keys() != before.keys() or any(attributes[name] is not value for name, value in before.items()):
                attributes.clear()
                attributes.update(before)
            for name, value in held.items():
                _refill(before[name], value)
        for container, value in self.containers:
            _refill(container, value)


def _refill(container: Any, value: Any) -> None:
    """`container`, the object itself, holds again what its copy `value` holds."""
    if len(container) == len(value) and _same(container, value):
        return
    container.clear()
    if isinstance(container, (list, collections.deque)):
        container.extend(value)
    else:
        container.update(value)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(x is y and a[x] is b[y] for x, y in zip(a, b))
    if isinstance(a, set):
        return bool(a == b)
    return all(x is y for x, y in zip(a, b))
