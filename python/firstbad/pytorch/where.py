"""Where a replay stands: module, line, boundary, micro-step and autograd node of the operator that runs now.

Forward: the innermost module, by hooks that are there during a replay only. Backward: the autograd node has the number that torch
gave it in forward; what forward noted under that number is the place.
"""
from __future__ import annotations

from types import CodeType
from typing import Any, Dict, List, NamedTuple, Optional, Set

import torch

from .. import _abi as abi
from . import source


class At(NamedTuple):
    module: str
    source: Optional[str]
    boundary: int
    micro: int
    node: Optional[str]


class Where:
    """now() is asked once for each operator. parameters: id of a leaf -> its module."""

    def __init__(self, parameters: Optional[Dict[int, str]] = None) -> None:
        self.parameters = parameters or {}
        self.stack: List[str] = []
        self.of_sequence: Dict[int, At] = {}
        self.micro = 0
        self.backward = False
        self.fixed: Optional[At] = None  # of a tail operator, of the optimizer
        self.called: Optional[str] = None  # where the user called what runs now, for code that is all torch's
        self.until: Set[CodeType] = set()  # our own code that calls it: what lies beyond is not the program's
        self.hooks: List[Any] = []

    def watch(self, name: str, root: torch.nn.Module) -> None:
        """Follow the modules of a root; `name` is its prefix."""
        for path, module in root.named_modules():
            full = f"{name}.{clean(path)}" if name and path else name or clean(path)
            self.hooks.append(module.register_forward_pre_hook(lambda _m, _a, full=full: self.stack.append(full), prepend=True))
            self.hooks.append(module.register_forward_hook(self._left, always_call=True))

    def _left(self, _module: Any, _args: Any, _output: Any) -> None:
        if self.stack:
            self.stack.pop()  # returns nothing: what a hook returns takes the place of the output

    def leave(self) -> None:
        """Take the hooks off."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()

    def now(self) -> At:
        if self.fixed is not None:
            return self.fixed if self.fixed.source is not None else self.fixed._replace(source=self.line())
        node = torch._C._current_autograd_node() if self.backward else None
        if node is not None and not self.stack:
            made = self.of_sequence.get(node._sequence_nr())
            name = node.name()
            if made is None:
                leaf = getattr(node, "variable", None)
                module = self.parameters.get(id(leaf), "") if leaf is not None else ""
                return At(module, None, abi.LOCAL_GRAD, self.micro, name)
            return At(made.module, made.source, abi.LOCAL_GRAD, self.micro, name)
        if self.backward and not self.stack:
            return At("", None, abi.LOCAL_GRAD, self.micro, None)
        return At(self.stack[-1] if self.stack else "", self.line(), abi.FORWARD, self.micro, None)

    def line(self) -> Optional[str]:
        """The user's line inside of what runs now, else the one that called it."""
        return source.caller(None, self.until) or self.called

    def forward_made(self) -> None:
        """An operator came by: the node that it will have in backward was made just before."""
        if self.backward and not self.stack:
            return
        number = torch._C._autograd._get_sequence_nr() - 1
        if number not in self.of_sequence:
            self.of_sequence[number] = self.now()


def clean(path: str) -> str:
    """A module's path without what wrappers add to it."""
    return ".".join(part for part in path.split(".")
                    if part not in ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
