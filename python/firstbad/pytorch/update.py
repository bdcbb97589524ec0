"""One update of the training state, from the first forward after the last update to the end of its last optimizer."""
from __future__ import annotations

import dataclasses
import itertools
import weakref
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

import torch

from .. import _abi as abi
from .calls import Calls
from .registry import optimizers as known_optimizers


@dataclasses.dataclass
class Loss:
    """A loss as backward was given it, before a scaler multiplied it. `told`: the library has looked at it."""

    tensor: Any
    micro: int
    finite: bool
    told: bool


@dataclasses.dataclass
class Update:
    """number: 0-based count of updates, skipped ones included. micro: 0-based, rises at the first forward after a backward.

    verdict: of the last vote; None before the gate. skipped: nothing of this update is to be applied.
    findings: what other parts know of, for a person; what counts is what the library holds.
    """

    number: int
    micro: int = 0
    losses: List[Loss] = dataclasses.field(default_factory=list)
    findings: List[Any] = dataclasses.field(default_factory=list)
    verdict: Optional[abi.Verdict] = None
    skipped: bool = False
    samples: Optional[List[int]] = None
    samples_given: bool = False  # the program named them itself
    fingerprint: Optional[int] = None
    program: Any = None
    located: Any = None

    calls: Calls = dataclasses.field(default_factory=Calls)
    roots: List[int] = dataclasses.field(default_factory=list)  # ids of the roots that ran, in order, each once
    met: List[Any] = dataclasses.field(default_factory=list)  # roots that ran for the first time
    open: bool = False  # fb_step_begin was called
    applied: bool = False  # fb_step_apply let it through
    proposed: bool = False  # its result lies in the place of the state, and was not voted on yet
    backward_since_forward: bool = False
    sample: Any = None  # (parameter, weak gradient, version) after the last backward: by it is seen that gradients were reset
    left: Dict[int, Tuple[Any, int]] = dataclasses.field(default_factory=dict)  # as `stale`, after the last backward
    forward_failed: bool = False
    backwards: int = 0
    gated: Dict[int, Tuple[Any, int]] = dataclasses.field(default_factory=dict)  # id(parameter) -> (gradient, version) as looked at
    gated_backwards: int = -1  # how many backwards there had been when they were voted on
    again: int = 0  # how often they were found bad after that vote
    expected: Set[int] = dataclasses.field(default_factory=set)  # ids of optimizers that are to step
    stepped: List[int] = dataclasses.field(default_factory=list)  # ids of optimizers that did, withheld ones included
    stale: Dict[int, Any] = dataclasses.field(default_factory=dict)  # id(param) -> (weak gradient, version) as the update began
    touched: FrozenSet[int] = frozenset()  # ids of optimizers whose gradients backward wrote into
    ended: str = ""  # the program ended in this update, by this
    held: List[Any] = dataclasses.field(default_factory=list)  # replay_update.Held of a step that was made and taken back
    scaler_used: bool = False
    scaler_updated: bool = False
    in_backward: bool = False  # an optimizer stepped inside backward
    clipped_scaled: bool = False
    grad_norm: Optional[float] = None
    scaled: Dict[int, Any] = dataclasses.field(default_factory=dict)  # id(scaled loss) -> (scaled loss, loss)

    def over(self) -> bool:
        """A forward that begins now belongs to the next update."""
        return bool(self.stepped) or self.skipped or self.scaler_updated

    def note_sample(self, roots: Sequence[Any]) -> None:
        """Remember gradients as the backward that has just ended left them. Cost: 0.2 us a parameter."""
        self.sample = None
        for optimizer in known_optimizers.alive():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    gradient = parameter.grad
                    if gradient is not None:
                        self.left[id(parameter)] = weakref.ref(gradient), gradient._version
        for parameter in itertools.chain(
                (p for optimizer in known_optimizers.alive() for group in optimizer.param_groups for p in group["params"]),
                (p for root in roots if isinstance(root, torch.nn.Module) for p in root.parameters())):
            if parameter.grad is not None:
                self.sample = parameter, weakref.ref(parameter.grad), parameter.grad._version
                return

    def changed_since_backward(self, parameter: Any) -> bool:
        """Did somebody write into its gradient, or put another in its place, after backward and before the gate?"""
        known, seen = self.left.get(id(parameter)), self.gated.get(id(parameter))
        return known is not None and seen is not None and (known[0]() is not seen[0] or known[1] != seen[1])

    def leave_out_losses(self) -> bool:
        """Losses that are not finite, and that nobody was told of, are none of this update's. Were there any?"""
        bad = [loss for loss in self.losses if not loss.finite and not loss.told]
        for loss in bad:
            self.losses.remove(loss)
        return bool(bad)

    def all_cleared(self) -> bool:
        """Is there no gradient but such as were there before this update began, or zeros? Cost: a read of those that are there."""
        for optimizer in known_optimizers.alive():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    gradient = parameter.grad
                    known = self.stale.get(id(parameter))
                    same = known is not None and known[0]() is gradient and known[1] == getattr(gradient, "_version", -1)
                    if gradient is not None and not same and bool(gradient.any()):
                        return False
        return True

    def was_reset(self) -> bool:
        """Did somebody take away or zero the gradients that the last backward left, so that what comes next does not add to
        them?"""
        if self.sample is None:
            return False
        parameter, gradient, version = self.sample
        now = parameter.grad
        if now is None:
            return True
        return (gradient() is not now or now._version != version) and not bool(now.any())
