"""The step of one optimizer again, on copies of all that it changes: for a fault that is made by the update itself."""
from __future__ import annotations

import contextlib
import copy
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from .. import _abi as abi
from . import randomness, untouched
from .replay import Change
from .tape import Tape
from .where import At, Where


class Held(NamedTuple):
    """An update that was made and taken back.

    optimizer: parameters, state and gradients as they were before its step. names: leaf -> (module, name).
    source: the line that called step, for optimizers that are all torch's. inv_scale: what the gradients have to be multiplied with
    first, 1 where they are unscaled.
    """

    optimizer: torch.optim.Optimizer
    names: Dict[int, Tuple[str, str]]
    source: Optional[str] = None
    inv_scale: float = 1.0


class UpdateReplay:
    """The step of one optimizer again, on copies of all that it changes."""

    def __init__(self, held: Held, micro: int = 0) -> None:
        self.held, self.micro = held, micro
        self.unwritten = 0

    def run(self, handle: Any = None, change: Change = Change(), fill: float = 0.0) -> Optional[Tape]:
        """As Replay.run. Memory: what the optimizer owns, once more."""
        with untouched.active(), untouched.flags(), untouched.optimizer_hooks_off(), randomness.Streams():
            return self._run(handle, change, fill)

    def _run(self, handle: Any, change: Change, fill: float) -> Optional[Tape]:
        where = Where()
        where.micro = self.micro
        tape = Tape(handle, where, change.widen, fill) if handle is not None else None
        clone, leaves = clone_of(self.held.optimizer, change.widen)
        if self.held.inv_scale != 1.0:
            for _, leaf in leaves:
                if leaf.grad is not None:
                    leaf.grad.mul_(self.held.inv_scale)
        where.fixed = At("optimizer", None, abi.UPDATE, self.micro, None)
        where.called, where.until = self.held.source, {UpdateReplay._run.__code__}
        named = [(leaf, *self.held.names.get(id(live), ("", f"parameter{i}"))) for i, (live, leaf) in enumerate(leaves)]
        if tape is not None:
            for leaf, module, name in named:
                tape.entry(leaf.detach(), module, name, abi.TAPE_STATE)
                for key, value in clone.state.get(leaf, {}).items():
                    if isinstance(value, torch.Tensor):
                        tape.entry(value, module, f"{name}.{key}", abi.TAPE_STATE)
                if leaf.grad is not None:
                    tape.entry(leaf.grad, module, f"{name}.grad", 0)
            for i, group in enumerate(clone.param_groups):
                rate = group.get("lr")
                if isinstance(rate, torch.Tensor):
                    tape.entry(rate, "", "learning_rate" if i == 0 else f"learning_rate.{i}", abi.TAPE_SCALAR | abi.TAPE_STATE)
        with tape if tape is not None else contextlib.nullcontext():
            type(clone).step(clone)  # not clone.step: a scheduler has put a wrapper there that steps the original
        if tape is not None:
            for leaf, module, name in named:
                tape.site(name, leaf.detach(), module, abi.UPDATE)
                for key, value in clone.state.get(leaf, {}).items():
                    if isinstance(value, torch.Tensor):
                        tape.site(f"{name}.{key}", value, module, abi.UPDATE)
            self.unwritten = tape.unwritten
        return tape


def clone_of(
    optimizer: torch.optim.Optimizer, widen: bool = False
) -> Tuple[torch.optim.Optimizer, List[Tuple[torch.Tensor, torch.Tensor]]]:
    """An optimizer over copies: (it, [(live leaf, its copy)]). It runs its plain form, leaf by leaf."""
    memo: Dict[int, Any] = {}
    leaves: List[Tuple[torch.Tensor, torch.Tensor]] = []
    for group in optimizer.param_groups:
        for leaf in group["params"]:
            data = leaf.detach().clone()
            data = data.float() if widen and data.dtype in (torch.float16, torch.bfloat16) else data
            made = torch.nn.Parameter(data, requires_grad=leaf.requires_grad) if isinstance(leaf, torch.nn.Parameter) else \
                data.requires_grad_(leaf.requires_grad)
            made.grad = None if leaf.grad is None else leaf.grad.detach().clone().to(made.dtype)
            memo[id(leaf)] = made
            leaves.append((leaf, made))
    clone = object.__new__(type(optimizer))
    state = {key: value for key, value in vars(optimizer).items() if key not in ("step", "_zero_grad_profile_name")}
    memo[id(optimizer)] = clone
    clone.__dict__.update({key: copy.deepcopy(value, memo) if key in ("state", "param_groups", "defaults") else value
                           for key, value in state.items()})
    for key in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        if key in clone.__dict__:
            clone.__dict__[key] = type(clone.__dict__[key])()
    for group in clone.param_groups:
        for option in ("foreach", "fused"):
            if option in group:
                group[option] = False
        if group.get("capturable") and not any(leaf.is_cuda for leaf in group["params"]):
            group["capturable"] = False
    if widen:
        for value in clone.state.values():
            for key, tensor in list(value.items()):
                if isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.float16, torch.bfloat16):
                    value[key] = tensor.float()
    return clone, leaves
