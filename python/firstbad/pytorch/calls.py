"""Forwards of an update, and which of them still matter.

A program may run its model for other reasons than the update that comes next: an evaluation that forgot no_grad, a shape that is
tried out, the power iterations of a parametrization. Such a call is over when nothing can lead back to it any more: its graph is
gone. That is seen by a token in the graph's own notes (`grad_fn.metadata`), which lives as long as the graph does; a call without
a graph by its outputs themselves.
"""
from __future__ import annotations

import weakref
from typing import Any, Dict, List, Tuple

import torch

from . import trees

Snapshot = Dict[int, Tuple[torch.Tensor, torch.Tensor, int]]  # id(buffer) -> (buffer, its copy, its version)


class _Token:
    __slots__ = ("__weakref__",)


class Call:
    """One call of a root. snapshot: buffers as they were before it."""

    __slots__ = ("snapshot", "alive")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.alive: Any = None  # None: it runs. Else weak references, one of which lives as long as the call matters

    def returned(self, outputs: Any) -> None:
        """Its outputs are there. Cost: a microsecond a tensor."""
        token = _Token()
        alive: List[Any] = [weakref.ref(token)]
        for tensor in trees.tensors(outputs):
            node = tensor.grad_fn
            if node is not None:
                node.metadata["firstbad"] = token
            else:
                alive.append(weakref.ref(tensor))
        self.alive = alive

    def leads_to(self, token: Any) -> None:
        """It matters as long as this lives, too."""
        if self.alive is not None and not self.over():
            self.alive.append(weakref.ref(token))

    def over(self) -> bool:
        """Nothing leads back to it."""
        return self.alive is not None and all(reference() is None for reference in self.alive)


class Calls:
    """Those of the update that runs, the oldest first."""

    def __init__(self) -> None:
        self.held: List[Call] = []

    def prune(self) -> int:
        """Forget the oldest calls that are over. Returns how many are left. Before the first backward only: afterwards all
        count."""
        held = self.held
        gone = 0
        while gone < len(held) and held[gone].over():
            gone += 1
        del held[:gone]
        return len(held)

    def led_to(self, gradients: Any) -> None:
        """torch.autograd.grad returned these. Where they have a graph of their own, as those of a gradient penalty do, it does not
        hold the notes of the forwards that it is of."""
        token = _Token()
        nodes = [tensor.grad_fn for tensor in trees.tensors(gradients) if tensor.grad_fn is not None]
        for node in nodes:
            node.metadata["firstbad gradient"] = token
        for call in self.held if nodes else ():
            call.leads_to(token)

    def before(self) -> Snapshot:
        """Each buffer as it was before the first of the calls that moved it."""
        out: Snapshot = {}
        for call in self.held:
            for key, kept in call.snapshot.items():
                out.setdefault(key, kept)
        return out

    def forget(self) -> None:
        self.held.clear()
