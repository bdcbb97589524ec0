"""Names of modules and parameters, and the sites that the library knows them by.

A module's name is its path below its *scope*. One scope: no prefix. Several: the class first ("Generator.net.0"), "#2" when there
are two of a class. What wrappers add to a path is left out.
"""
from __future__ import annotations

import ctypes
import gc
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import torch

from .. import _abi as abi
from .. import _native
from . import sharded

_WRAPPERS = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))


def clean(path: str) -> str:
    """A module's path without what wrappers add to it."""
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def unwrapped(module: Any) -> Any:
    """The user's own module below DDP, torch.compile and the like."""
    for _ in range(8):
        inner = module.__dict__.get("_modules", {})
        name = next((n for n in _WRAPPERS if n in inner), None) if len(inner) == 1 else None
        if name is None or inner[name] is None:
            return module
        module = inner[name]
    return module


def _all_modules() -> List[torch.nn.Module]:
    """Every module in this process. Cost: 10-30 ms."""
    kinds: Dict[type, bool] = {}
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        is_module = kinds.get(kind)
        if is_module is None:
            is_module = kinds[kind] = issubclass(kind, torch.nn.Module)
        if is_module:
            found.append(thing)
    return found


def tops(owned: Iterable[torch.Tensor]) -> List[torch.nn.Module]:
    """Modules that hold any of these parameters and are no part of another module, largest first."""
    wanted = {id(parameter) for parameter in owned}
    modules = [m for m in _all_modules() if "_parameters" in m.__dict__]
    children = {id(child) for module in modules for child in module.__dict__["_modules"].values() if child is not None}
    found = []
    for module in modules:
        if id(module) not in children:
            held = sum(1 for parameter in module.parameters() if id(parameter) in wanted)
            if held:
                found.append((held, module))
    found.sort(key=lambda pair: -pair[0])
    return [module for _, module in found]


class Place:
    """A tensor of the state. names: all it goes by; the first is its site's."""

    __slots__ = ("tensor", "module", "name", "also", "gradient", "parameter", "sparse")

    def __init__(self, tensor: torch.Tensor, module: str, name: str, sparse: bool) -> None:
        self.tensor = tensor
        self.module = module
        self.name = name
        self.also: List[str] = []
        self.sparse = sparse
        self.gradient = self.parameter = abi.UINT32_MAX  # ids of sites


class Names:
    """Scopes, places and sites of a session. Sites are added between steps, in the order of the dataflow as far as it is known."""

    def __init__(self) -> None:
        self.scopes: List[torch.nn.Module] = []
        self.prefixes: List[str] = []
        self.places: Dict[int, Place] = {}  # id(parameter) -> place; the tensor is kept, so ids stay theirs
        self.buffers: Dict[int, Tuple[torch.Tensor, str, str, int]] = {}
        self.sites: Dict[Tuple[int, str, str], int] = {}
        self.gone: Set[int] = set()  # sites of gradients that are no more: the library still expects them to be handed over
        self._roots: Dict[int, Tuple[Any, str, int]] = {}  # id(root) -> (root, prefix, scopes there were)
        self._kinds: Dict[str, int] = {}  # class of a scope -> how many there were

    # ---- scopes ------------------------------------------------------------------------------------------------------------------

    def add_scope(self, module: Any) -> None:
        """A module whose parts are named from here on."""
        module = unwrapped(module)
        if any(module is known for known in self.scopes):
            return
        self.scopes.append(module)
        kind = type(module).__name__
        self._kinds[kind] = same = self._kinds.get(kind, 0) + 1
        self.prefixes.append(kind if same == 1 else f"{kind}#{same}")

    def prefix(self, scope: int) -> str:
        """"" while there is one scope, and was never another: a name means one tensor throughout a run."""
        return self.prefixes[scope] if sum(self._kinds.values()) > 1 else ""

    def let_go(self, roots: Sequence[Any], owned: Sequence[torch.Tensor]) -> None:
        """Forget scopes with neither one of these roots nor one of these parameters, so that a program which trains one model after
        another does not keep them all."""
        mine = {id(unwrapped(root)) for root in roots if isinstance(root, torch.nn.Module)}
        wanted = {id(parameter) for parameter in owned}
        kept = [scope for scope in self.scopes if any(id(m) in mine for m in scope.modules())
                or any(id(p) in wanted for p in scope.parameters())]
        if len(kept) == len(self.scopes):
            return
        wanted.update(id(p) for scope in kept for p in scope.parameters())
        buffers = {id(b) for scope in kept for b in scope.buffers()}
        still = [any(scope is one for one in kept) for scope in self.scopes]
        self.prefixes = [prefix for prefix, there in zip(self.prefixes, still) if there]
        self.scopes = kept
        self.gone.update(place.gradient for key, place in self.places.items() if key not in wanted)
        self.places = {key: place for key, place in self.places.items() if key in wanted}
        self.buffers = {key: entry for key, entry in self.buffers.items() if key in buffers}
        self._roots = {key: entry for key, entry in self._roots.items() if any(entry[0] is root for root in roots)}

    def of_root(self, root: Any) -> str:
        """The prefix of a root's parts: "" for the only scope, "Generator", or its path within a scope."""
        known = self._roots.get(id(root))
        if known is not None and known[0] is root and known[2] == len(self.scopes):
            return known[1]
        name = self._find(root)
        self._roots[id(root)] = (root, name, len(self.scopes))
        return name

    def _find(self, root: Any) -> str:
        inner = unwrapped(root)
        for index, scope in enumerate(self.scopes):
            if inner is scope:
                return self.prefix(index)
        for index, scope in enumerate(self.scopes):
            for path, module in scope.named_modules():
                if module is inner:
                    return _join(self.prefix(index), clean(path))
        return type(inner).__name__

    def cover(self, roots: Sequence[Any], owned: Sequence[torch.Tensor]) -> None:
        """Name all of it. Scopes: the only root, if it holds all that optimizers own; else the outermost modules that hold any of
        it."""
        inner = [module for module in map(unwrapped, roots) if isinstance(module, torch.nn.Module)]
        if not self.scopes:
            held = {id(parameter) for parameter in inner[0].parameters()} if len(inner) == 1 else set()
            if len(inner) == 1 and all(id(parameter) in held for parameter in owned):
                self.add_scope(inner[0])
            else:
                for module in tops(owned) if owned else []:
                    self.add_scope(module)
        for module in inner:
            if not any(module is known for scope in self.scopes for known in scope.modules()):
                self.add_scope(module)
        self.refresh()
        self.add_loose([parameter for parameter in owned if id(parameter) not in self.places], "optimizer")

    # ---- places ------------------------------------------------------------------------------------------------------------------

    def refresh(self) -> List[Place]:
        """Find parameters and buffers of the scopes that are new. Returns the new places."""
        new = []
        for index, scope in enumerate(self.scopes):
            for path, module in scope.named_modules():
                full = _join(self.prefix(index), clean(path))
                sparse = bool(getattr(module, "sparse", False))
                for name, parameter in [*module._parameters.items(), *sharded.behind(module)]:
                    if parameter is None:
                        continue
                    name += sharded.label(parameter)
                    known = self.places.get(id(parameter))
                    if known is None:
                        self.places[id(parameter)] = place = Place(parameter, full, name, sparse)
                        new.append(place)
                    elif (known.module, known.name) != (full, name) and _join(full, name) not in known.also:
                        known.also.append(_join(full, name))
                for name, buffer in module._buffers.items():
                    if buffer is not None and id(buffer) not in self.buffers:
                        self.buffers[id(buffer)] = (buffer, full, name, abi.UINT32_MAX)
        return new

    def add_loose(self, parameters: Sequence[torch.Tensor], group: str) -> List[Place]:
        """Parameters that no scope holds: they are named by their place in an optimizer."""
        new = []
        for index, parameter in enumerate(parameters):
            if id(parameter) not in self.places:
                self.places[id(parameter)] = place = Place(parameter, group, f"[{index}]", False)
                new.append(place)
        return new

    def of(self, parameter: torch.Tensor) -> str:
        """"h.0.attn.c_attn.weight"; "" for one that is not known."""
        place = self.places.get(id(parameter))
        return _join(place.module, place.name) if place is not None else ""

    # ---- sites -------------------------------------------------------------------------------------------------------------------

    def site(self, run: Any, role: int, module: str, tensor: str, shape: Optional[Sequence[int]] = None) -> int:
        """The id of a site, added if it is new. Only between steps when it is. Raises LibraryError."""
        key = (role, module, tensor)
        known = self.sites.get(key)
        if known is not None:
            return known
        site = abi.Site.new(role=role, module=module, tensor=tensor)
        if shape is not None and 0 < len(shape) <= abi.DIMS_MAX:
            site.ndim = len(shape)
            for axis, size in enumerate(shape):
                site.shape[axis] = size
        number = ctypes.c_uint32()
        _native.call(_native.lib().fb_run_add_site, run, ctypes.byref(site), ctypes.byref(number))
        self.sites[key] = number.value
        return number.value

    def known_site(self, role: int, module: str, tensor: str) -> Optional[int]:
        return self.sites.get((role, module, tensor))

    def add_sites(self, run: Any, owned: Iterable[torch.Tensor]) -> None:
        """Sites of parameters that optimizers own, and of their gradients, in the order of the model. Between steps. Parameters
        that nobody owns have none: an update is gated only if every gradient that the library knows was handed over."""
        wanted = {id(parameter) for parameter in owned}
        for key, place in self.places.items():
            if key in wanted and place.gradient == abi.UINT32_MAX:
                shape = None if place.sparse or place.tensor.is_sparse else _shape(place.tensor)
                place.gradient = self.site(run, abi.ROLE_GRADIENT, place.module, place.name + ".grad", shape)
                place.parameter = self.site(run, abi.ROLE_PARAMETER, place.module, place.name, _shape(place.tensor))


def _shape(tensor: torch.Tensor) -> Sequence[int]:
    local = getattr(tensor, "to_local", None)
    return tuple((local() if local is not None else tensor).shape)
