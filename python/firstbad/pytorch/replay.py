"""Run a recorded update again, in the living process, under the tape; and leave no trace.

The roots are called again (eagerly, without DDP around them) with the inputs they had, random streams and autocast set as they
were; the operators between them run again; backward runs into gradients of its own. Before it returns, everything that this touched
is as it was: gradients (the very tensors), buffers, random streams, attributes of modules, hooks, flags of torch, requires_grad.

A replay is never asked to be cheap; it costs a step and, for the tape, a call for each operator.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from . import randomness, trees, untouched
from .program import Backward, External, InnerGrad, Program, Ref, Require, RootCall, TailOp, as_called, plain_module, rebuild_refs
from .tail import copy_of
from .tape import Fresh, Tape
from .untouched import replaying as replaying
from .where import At, Where
class Unsupported(RuntimeError):
    """This kind of replay cannot be made of this program; the sentence says why."""


class Change(NamedTuple):
    """In what a replay is to differ.

    widen: numbers of 16 bits become 32, autocast is off.
    externals: number of an external -> what takes its place (a smaller batch, another rank's).
    rng: index of a step -> random state in the place of its own.
    rows: of a smaller batch: which row stands in the place of each; a list of numbers or texts with one item a row follows.
    """

    widen: bool = False
    externals: Dict[int, torch.Tensor] = {}
    rng: Dict[int, torch.Tensor] = {}
    rows: Tuple[int, ...] = ()


class Names(NamedTuple):
    """What things are called. state: (tensor, module, name, flags) of parameters and buffers. gradients: (leaf, module, name) of
    leaves whose gradient is a site."""

    state: Sequence[Tuple[torch.Tensor, str, str, int]]
    gradients: Sequence[Tuple[torch.Tensor, str, str]]
    scalars: Sequence[Tuple[torch.Tensor, str]] = ()


Site = Callable[[str, torch.Tensor, str, int], None]


class Replay:
    """One run of a program.

    names: see Names. boundary: where gradients are looked at: LOCAL_GRAD, or REDUCED_GRAD with `reduce`.
    reduce: (leaf) -> nothing: average the gradient of a leaf over the ranks, in place; None: one process.
    loss_at: of several backwards in the finding's micro-step, the one whose loss is the site "loss"; -1: each is.
    """

    def __init__(self, program: Program, names: Names, boundary: int = abi.LOCAL_GRAD,
                 reduce: Optional[Callable[[torch.Tensor], None]] = None, loss_at: int = -1, micro: int = -1) -> None:
        self.program, self.names, self.boundary, self.reduce, self.loss_at = program, names, boundary, reduce, loss_at
        self.finding_micro = micro
        self.losses: List[torch.Tensor] = []  # of the last run, in the order of backwards; detached
        self.tracked: List[bool] = []  # of the same: has it a gradient?
        self.gradients: List[Tuple[torch.Tensor, Optional[torch.Tensor]]] = []  # of the last run
        self.unwritten = 0

    def lost(self) -> None:
        """A run of this rank failed: others that wait for it in a collective hear of it."""
        getattr(self.reduce, "lost", lambda: None)()

    def run(self, handle: Any = None, change: Change = Change(), fill: float = 0.0) -> Optional[Tape]:
        """handle: the fb_tape; None: run without one. Returns the Tape, for reruns. Raises what the program raises."""
        if self.program.problems:
            raise Unsupported("; ".join(self.program.problems))
        getattr(self.reduce, "begin", lambda: None)()
        leaves = [leaf for leaf, _, _ in self.names.gradients]
        with contextlib.ExitStack() as stack:
            for keeper in (untouched.active(), untouched.flags(), untouched.threads_kept(), untouched.grad_mode()):
                stack.enter_context(keeper)
            buffers = stack.enter_context(untouched.state_of(self.program, leaves, change.widen))
            streams = stack.enter_context(randomness.Streams())
            return _Run(self, handle, change, fill, streams, buffers).run()


# ---- one run ---------------------------------------------------------------------------------------------------------------------


class _Run:
    def __init__(self, replay: Replay, handle: Any, change: Change, fill: float, streams: randomness.Streams,
                 buffers: Dict[int, torch.Tensor]) -> None:
        self.buffers = buffers
        self.replay, self.program, self.change, self.streams = replay, replay.program, change, streams
        self.where = Where({id(leaf): module for leaf, module, _ in replay.names.gradients})
        self.tape = Tape(handle, self.where, change.widen, fill) if handle is not None else None
        self.fresh = Fresh(fill, change.widen)
        self.where.until = {_Run._root.__code__, _Run._operator.__code__, _Run._inner.__code__, _Run._backward.__code__}
        self.values: List[Any] = [None] * self.program.values
        self.given: Dict[int, torch.Tensor] = {}
        self.last_root = max((i for i, step in enumerate(self.program.steps) if isinstance(step, RootCall)), default=-1)

    def run(self) -> Optional[Tape]:
        replay = self.replay
        replay.losses, replay.tracked, replay.gradients = [], [], []
        for number, external in enumerate(self.program.externals):
            self.given[number] = self._give(number, external)
        self._entries()
        try:
            for name, root in self.program.roots:
                if isinstance(root, torch.nn.Module):
                    self.where.watch(name, root)
            for index, step in enumerate(self.program.steps):
                self._step(index, step)
                self._forget(index)
            self._sites()
        finally:
            self.where.leave()
            self.where.of_sequence.clear()
        if self.tape is not None:
            replay.unwritten = self.tape.unwritten
        return self.tape

    def _give(self, number: int, external: External) -> torch.Tensor:
        """An external as a replay sees it: itself where gradients go to it, else a copy, since a forward may write into it."""
        if number in self.change.externals:
            return self.change.externals[number].clone()
        if external.live():
            return external.tensor
        given = copy_of(external.before if external.before is not None else external.tensor)
        return given.float() if self.change.widen and given.dtype in (torch.float16, torch.bfloat16) else given

    def _entries(self) -> None:
        if self.tape is None:
            return
        known = set()
        for tensor, module, name, flags in self.replay.names.state:
            self.tape.entry(self.buffers.get(id(tensor), tensor).detach(), module, name, flags)
            known.add(id(tensor))
        for number, external in enumerate(self.program.externals):
            if id(external.tensor) in known:
                continue
            scalar = next((name for tensor, name in self.replay.names.scalars if tensor is external.tensor), None)
            name = external.name or f"constant{number}"
            if self.replay.finding_micro >= 0 and external.micro != self.replay.finding_micro:
                name = f"{name}@{external.micro}"
            if scalar is not None:
                self.tape.entry(self.given[number], "", scalar, abi.TAPE_SCALAR | abi.TAPE_STATE)
            elif external.live():
                self.tape.entry(external.tensor.detach(), "", name, abi.TAPE_STATE)
            elif external.batch:
                mask = abi.TAPE_MASK if "mask" in name or "bias" in name else 0
                unseen = 0 if external.given else abi.TAPE_UNSEEN
                self.tape.entry(self.given[number], "batch", name, abi.TAPE_BATCH | mask | unseen)

    def _step(self, index: int, step: Any) -> None:
        self.where.micro = step.micro if hasattr(step, "micro") else self.where.micro
        if isinstance(step, RootCall):
            self._root(index, step)
        elif isinstance(step, TailOp):
            self._operator(index, step)
        elif isinstance(step, Require):
            self._get(step.ref).requires_grad_()
        elif isinstance(step, InnerGrad):
            self._inner(step)
        else:
            self._backward(step)

    def _inside(self) -> Any:
        return self.tape if self.tape is not None else self.fresh

    def _get(self, ref: Ref) -> torch.Tensor:
        found = self.given[ref.number] if ref.external else self.values[ref.number]
        if found is None:
            raise Unsupported("a tensor of the program was read before it was made")
        return found  # type: ignore[no-any-return]

    def _arguments(self, tree: Any, inputs: bool = False) -> Any:
        if inputs and self.change.rows:
            tree = _in_rows(tree, self.change.rows)
        return rebuild_refs(tree, lambda leaf: self._get(leaf) if isinstance(leaf, Ref) else leaf)

    def _root(self, index: int, step: RootCall) -> None:
        state = step.rng if index not in self.change.rng else step.rng._replace(cpu=self.change.rng[index])
        randomness.restore(state)
        mine = self.replay.finding_micro in (-1, step.micro)
        args, kwargs = self._arguments(step.args, mine), self._arguments(step.kwargs, mine)
        self.where.fixed, self.where.called = None, step.source
        with torch.set_grad_enabled(step.grad), untouched.autocast_as(step.autocast, self.change.widen), self._inside(), \
                as_called(step):
            outputs = plain_module(step.root)(*args, **kwargs)
        made = trees.tensors(outputs)
        if len(made) != len(step.outputs):
            raise Unsupported(f"forward gave {len(made)} tensors in the replay, and {len(step.outputs)} in the run")
        for number, tensor in zip(step.outputs, made):
            self.values[number] = tensor

    def _operator(self, index: int, step: TailOp) -> None:
        if step.rng is not None:
            torch.set_rng_state(self.change.rng.get(index, step.rng))
        for generator, state in step.generators:
            self.streams.keep(generator)
            generator.set_state(state)
        args, kwargs = self._arguments(step.args), self._arguments(step.kwargs)
        if self.change.rows and self.replay.finding_micro in (-1, step.micro):
            args = tuple(_in_rows(given, self.change.rows) if "lengths" in argument.name else given
                         for argument, given in zip(step.func._schema.arguments, args))
        boundary = abi.LOSS if index > self.last_root else abi.FORWARD
        self.where.fixed = At("", step.source, boundary, step.micro, None)
        try:
            with torch.set_grad_enabled(step.grad), self._inside():
                result = step.func(*args, **kwargs)
        finally:
            self.where.fixed = None
        made = [result] if isinstance(result, torch.Tensor) else trees.tensors(result)
        for number, tensor in zip(step.outputs, made):
            if number >= 0:
                self.values[number] = tensor

    def _inner(self, step: InnerGrad) -> None:
        self.where.backward, self.where.called = True, None
        try:
            with self._inside():
                made = torch.autograd.grad(self._arguments(step.outputs), self._arguments(step.inputs),
                                           self._arguments(step.grad_outputs), **step.options)
        finally:
            self.where.backward = False
        for number, tensor in zip(step.results, made):
            if number is not None:
                self.values[number] = tensor

    def _backward(self, step: Backward) -> None:
        tensors = [self._get(ref) for ref in step.tensors]
        losses = [self._get(ref) for ref in step.losses]
        which = len(self.replay.losses)
        for loss in losses:
            self.replay.losses.append(loss.detach())
            self.replay.tracked.append(loss.requires_grad)
            if self.tape is not None and self.replay.loss_at in (-1, which):
                whole = not step.tensors and loss.numel() != 1  # of a program that ended before it had a loss
                self.tape.site("output" if whole else "loss", loss.detach(), "", abi.FORWARD if whole else abi.LOSS)
        if not tensors:
            return
        grads = [None if ref is None else self._get(ref).to(tensor.dtype) for ref, tensor in zip(step.grads, tensors)]
        inputs = None if step.inputs is None else [self._get(ref) for ref in step.inputs]
        self.where.backward, self.where.called = True, None
        try:
            with self._inside():
                torch.autograd.backward(tensors, grads, inputs=inputs, **step.options)
        finally:
            self.where.backward = False

    def _forget(self, index: int) -> None:
        """Let go of values that no later step reads, as the plain run would."""
        if not hasattr(self, "last_use"):
            self.last_use: Dict[int, List[int]] = {}
            seen = set()
            for i in range(len(self.program.steps) - 1, -1, -1):
                for number in _reads(self.program.steps[i]):
                    if number not in seen:
                        seen.add(number)
                        self.last_use.setdefault(i, []).append(number)
        for number in self.last_use.get(index, ()):
            self.values[number] = None

    def _sites(self) -> None:
        self.values = []
        self.where.micro = self.program.micro
        self.where.fixed = At("", None, self.replay.boundary, self.program.micro, None)
        reduced = set()
        for leaf, module, name in self.replay.names.gradients:
            gradient = leaf.grad
            self.replay.gradients.append((leaf, gradient))
            if gradient is None:
                continue
            if self.replay.reduce is not None and id(leaf) not in reduced:
                reduced.add(id(leaf))
                with torch.no_grad():
                    self.replay.reduce(leaf)
                if self.tape is not None:
                    self.tape.collective("all_reduce", gradient)
            if self.tape is not None:
                self.tape.site(f"{name}.grad", gradient, module, self.replay.boundary)
        self.where.fixed = None


def _in_rows(tree: Any, rows: Tuple[int, ...]) -> Any:
    """Lists of numbers or texts with one item a row, in the order of `rows`. A tuple is a shape more often than that."""
    if type(tree) is list and len(tree) == len(rows) and all(isinstance(item, (int, float, str)) for item in tree):
        return [tree[row] for row in rows]
    if type(tree) in (list, tuple):
        return type(tree)(_in_rows(child, rows) for child in tree)
    if type(tree) is dict:
        return {key: _in_rows(child, rows) for key, child in tree.items()}
    return tree


def _reads(step: Any) -> List[int]:
    found: List[int] = []

    def look(leaf: Any) -> Any:
        if isinstance(leaf, Ref) and not leaf.external:
            found.append(leaf.number)
        return leaf

    if isinstance(step, (RootCall, TailOp)):
        rebuild_refs((step.args, step.kwargs), look)
    elif isinstance(step, InnerGrad):
        rebuild_refs((step.outputs, step.inputs, step.grad_outputs), look)
    elif isinstance(step, Require):
        look(step.ref)
    else:
        for ref in [*step.tensors, *step.losses, *(step.inputs or [])] + [ref for ref in step.grads if ref is not None]:
            look(ref)
    return found
