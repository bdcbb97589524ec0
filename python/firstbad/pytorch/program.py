"""What one update computed, as a program that can be run again.

A program is a row of steps: calls of root modules (with their inputs, random state and autocast), the operators that ran between
and after them ("tail": the loss, mostly), gradients that were taken in between, and backwards. Tensors are numbered: a *value* was
made by a step of the program, an *external* was there before (batch, labels, parameters used outside of a module).

Nothing here owns memory that the plain run would have freed before the optimizer, apart from the batch: values are known by weak
references to their storages. What cannot be replayed is said in `Program.problems`; what makes a replay differ, in `differences`.
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import inspect
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import torch

from . import trees
from .randomness import RngState


class Ref(NamedTuple):
    """A tensor of the program, by its number among values, or among externals."""

    external: bool
    number: int


@dataclasses.dataclass
class External:
    """A tensor that the update found there. `version` and `digest` tell whether somebody changed it since."""

    tensor: torch.Tensor
    version: int
    digest: int
    name: str  # "input_ids", "target"; "" where nobody gave it one
    micro: int
    batch: bool = False  # it was handed to a root, or is read as data; else a constant, or state
    before: Optional[torch.Tensor] = None  # its copy, where the update itself writes into it
    written: bool = False
    given: bool = True  # a DataLoader gave it out; else the program may have computed it before what is recorded

    def live(self) -> bool:
        """A leaf that gradients go to is used itself in a replay; anything else by its copy."""
        return self.tensor.requires_grad and self.tensor.is_leaf

    def changed(self) -> bool:
        """Somebody wrote into it after it was read, who is no part of the program."""
        if self.before is not None:
            return False
        return version_of(self.tensor) != self.version or digest_of(self.tensor) != self.digest


class Autocast(NamedTuple):
    """Autocast as it was: (device, enabled, dtype) of each device, whether weights are cached, and which attention kernels may
    run."""

    devices: Tuple[Tuple[str, bool, torch.dtype], ...]
    cache: bool
    attention: Tuple[bool, ...]


@dataclasses.dataclass
class RootCall:
    """A call of a root. args, kwargs: trees with a Ref in the place of each tensor."""

    root: Any
    name: str
    args: Any
    kwargs: Any
    micro: int
    rng: RngState
    autocast: Autocast
    grad: bool
    training: Tuple[bool, ...]
    source: Optional[str]
    outputs: List[int] = dataclasses.field(default_factory=list)
    paths: Dict[int, str] = dataclasses.field(default_factory=dict)  # of a value that it was handed -> the input's name
    finished: bool = False
    forward: Any = None  # forward_of the module, as it was called


@dataclasses.dataclass
class TailOp:
    """One operator outside of the roots, as the dispatcher saw it (below autograd and autocast)."""

    func: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    outputs: List[int]
    writes: List[Ref]
    micro: int
    grad: bool
    source: Optional[str]
    rng: Optional[torch.Tensor] = None  # state of torch's CPU generator, of one that draws
    generators: Tuple[Tuple[torch.Generator, torch.Tensor], ...] = ()


@dataclasses.dataclass
class Require:
    """value.requires_grad_() by the program, on a leaf of its own making."""

    ref: Ref


@dataclasses.dataclass
class InnerGrad:
    """torch.autograd.grad in the middle of an update: a gradient penalty, say."""

    outputs: Any
    inputs: Any
    grad_outputs: Any
    options: Dict[str, Any]
    results: List[Optional[int]]
    micro: int
    source: Optional[str]


@dataclasses.dataclass
class Backward:
    """A backward. losses: the tensors that count as the loss, before a scaler multiplied them."""

    tensors: List[Ref]
    grads: List[Optional[Ref]]
    inputs: Optional[List[Ref]]
    options: Dict[str, Any]
    losses: List[Ref]
    micro: int
    source: Optional[str]


Step = Union[RootCall, TailOp, Require, InnerGrad, Backward]


@dataclasses.dataclass
class Program:
    """One update. problems: why it cannot be replayed (empty: it can). differences: in what a replay is not the run, one sentence
    each.

    buffers: (live tensor, copy) of buffers that forward moved, as they were before the first forward.
    roots: (name, module) in the order in which they were first called; compiled wrappers and DDP taken off.
    """

    steps: List[Step]
    externals: List[External]
    values: int
    problems: List[str]
    differences: List[str]
    buffers: List[Tuple[torch.Tensor, torch.Tensor]]
    roots: List[Tuple[str, torch.nn.Module]]
    micro: int  # of the last forward

    def changed(self) -> List[str]:
        """Externals that were changed in place since they were read, by name. One look at each."""
        return [e.name or "a tensor that the loss reads" for e in self.externals if e.batch and not e.live() and e.changed()]

    def backwards(self, micro: int) -> List[Backward]:
        """The backwards of one micro-step."""
        return [step for step in self.steps if isinstance(step, Backward) and step.micro == micro]


# ---- the parts -------------------------------------------------------------------------------------------------------------------


def version_of(tensor: torch.Tensor) -> int:
    """The counter of writes in place; 0 where torch does not keep one (inference tensors)."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


_WHOLE = 1 << 16  # bytes that are hashed whole: 20 us
_WINDOWS = 32  # of 1 KiB, of anything larger


def digest_of(tensor: torch.Tensor) -> int:
    """A checksum that sees writes that go past torch (a numpy array that shares the memory). Whole up to 64 KiB, else 32 windows.

    0 for what is not in host memory or not dense: the version counter is all there is then.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return 0
    if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous() or tensor.numel() == 0:
        return 0
    size = tensor.numel() * tensor.element_size()
    at = tensor.data_ptr()
    if at == 0:
        return 0
    if size <= _WHOLE:
        return zlib.crc32((ctypes.c_char * size).from_address(at))
    total = 0
    for k in range(_WINDOWS):
        start = (size - 1024) * k // (_WINDOWS - 1)
        total = zlib.crc32((ctypes.c_char * 1024).from_address(at + start), total)
    return total


_DEVICES = ("cpu", "cuda")


def autocast_now() -> Autocast:
    """Autocast and the attention switches as they are. Cost: 1 us."""
    devices = tuple((device, autocast_enabled(device), autocast_dtype(device)) for device in _DEVICES)
    backends = torch.backends.cuda
    return Autocast(devices, torch.is_autocast_cache_enabled(),
                    (backends.flash_sdp_enabled(), backends.mem_efficient_sdp_enabled(), backends.math_sdp_enabled()))


def autocast_enabled(device: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # before 2.4 each device has its own
        return bool(torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled())


def autocast_dtype(device: str) -> torch.dtype:
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device)
    return torch.get_autocast_cpu_dtype() if device == "cpu" else torch.get_autocast_gpu_dtype()


def plain_module(root: Any) -> Any:
    """The module behind DDP and torch.compile: what runs in a replay, eagerly and without a collective of its own."""
    seen = 0
    while seen < 8:
        inner = getattr(root, "_orig_mod", None)
        if inner is None and type(root).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = getattr(root, "module", None)
        if inner is None:
            return root
        root, seen = inner, seen + 1
    return root


def forward_of(root: Any) -> Any:
    """What stands in the place of forward on this very module; None where its class has the say. Lightning puts training_step there
    for one call of DDP, and takes it away in the call."""
    return plain_module(root).__dict__.get("forward") if isinstance(root, torch.nn.Module) else None


@contextlib.contextmanager
def as_called(call: RootCall) -> Iterator[None]:
    """Around a call of the module again: forward is what it was then, and afterwards what it is now."""
    module = plain_module(call.root)
    if call.forward is None or module.__dict__.get("forward") is call.forward:
        yield
        return
    kept = [(thing, name, thing.__dict__[name]) for thing, name in ((module, "forward"), (call.root, "require_backward_grad_sync"))
            if name in thing.__dict__]
    module.__dict__["forward"] = call.forward
    try:
        yield
    finally:
        module.__dict__.pop("forward", None)
        for thing, name, value in kept:
            thing.__dict__[name] = value


_signatures: Dict[Any, List[str]] = {}


def input_names(root: Any) -> List[str]:
    """Names of the positional inputs of forward: ["input_ids", "attention_mask", ...]."""
    forward = getattr(root, "forward", root)
    function = getattr(forward, "__func__", None)
    known = _signatures.get(function) if function is not None else None
    if known is not None:
        return known
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if function is not None and len(_signatures) < 1000:
        _signatures[function] = names
    return names


def refs_in(tree: Any) -> List[Ref]:
    """The Refs of a tree of arguments."""
    found: List[Ref] = []

    def look(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            found.append(leaf)
        return leaf

    rebuild_refs(tree, look)
    return found


def rebuild_refs(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with change(leaf) for each leaf; a Ref is a leaf, though it is a tuple."""
    if isinstance(tree, Ref):
        return change(tree)
    if type(tree) in (tuple, list):
        return type(tree)(rebuild_refs(child, change) for child in tree)
    if type(tree) is dict:
        return {key: rebuild_refs(child, change) for key, child in tree.items()}
    return (
        trees.rebuild(tree, lambda leaf: change(leaf))
        if not isinstance(tree, (int, float, str, bool, type(None)))
        else change(tree)
    )


def _groups(steps: Sequence[Step]) -> Callable[[Ref], Any]:
    """Which tensors may share memory: (ref) -> something equal for those that may. Views, and what a root hands through."""
    parent: Dict[Ref, Ref] = {}

    def find(ref: Ref) -> Ref:
        while ref in parent:
            ref = parent[ref]
        return ref

    def join(refs: Sequence[Ref]) -> None:
        for ref in refs[1:]:
            a, b = find(refs[0]), find(ref)
            if a != b:
                parent[b] = a

    for step in steps:
        if isinstance(step, RootCall):
            join([Ref(False, number) for number in step.outputs] + refs_in((step.args, step.kwargs)))
        elif isinstance(step, TailOp):
            shared = [ref for argument, given in zip(step.func._schema.arguments, step.args) if argument.alias_info is not None
                      for ref in refs_in(given)]
            if shared:
                join([Ref(False, number) for number in step.outputs if number >= 0] + shared)
    return find


def live_steps(steps: Sequence[Step]) -> List[Step]:
    """The steps that a backward or a root depends on; metrics and logging fall away."""
    group = _groups(steps)
    needed: Set[Ref] = set()
    memory: Set[Ref] = set()  # groups of what is needed: a write through one of their views counts

    def need(refs: Iterable[Ref]) -> None:
        for ref in refs:
            needed.add(ref)
            memory.add(group(ref))

    kept: List[Step] = []
    for step in reversed(steps):
        if isinstance(step, TailOp):
            if not (
                any(Ref(False, number) in needed for number in step.outputs) or any(group(ref) in memory for ref in step.writes)
            ):
                continue
            need(refs_in((step.args, step.kwargs)))
        elif isinstance(step, RootCall):
            need(refs_in((step.args, step.kwargs)))
        elif isinstance(step, InnerGrad):
            if not any(number is not None and Ref(False, number) in needed for number in step.results):
                continue
            need(refs_in((step.outputs, step.inputs, step.grad_outputs)))
        elif isinstance(step, Require):
            if step.ref not in needed:
                continue
        else:
            need(step.tensors)
            need(ref for ref in step.grads if ref is not None)
            need(step.inputs or [])
            need(step.losses)
        kept.append(step)
    kept.reverse()
    return kept


def name_externals(steps: Sequence[Step], externals: Sequence[External]) -> None:
    """Externals that only the tail reads are called as the operator calls its argument: "target"; views are looked through."""
    stands_for: Dict[int, int] = {}
    for step in steps:
        for value, path in step.paths.items() if isinstance(step, RootCall) else ():
            if value in stands_for and not externals[stands_for[value]].name:
                externals[stands_for[value]].name = path
        if not isinstance(step, TailOp):
            continue
        for argument, given in zip(step.func._schema.arguments, step.args):
            for ref in refs_in(given):
                number = ref.number if ref.external else stands_for.get(ref.number, -1)
                if number < 0:
                    continue
                if argument.alias_info is not None and not argument.alias_info.is_write and len(step.outputs) == 1:
                    stands_for[step.outputs[0]] = number
                elif step.func._schema.name.split("::")[-1] in ("_to_copy", "clone", "alias", "detach", "lift_fresh"):
                    stands_for[step.outputs[0]] = number
                elif not externals[number].name:
                    externals[number].name = argument.name if argument.name != "self" else "input"


def __getattr__(name: str) -> Any:
    """program.Recorder: its file needs this one."""
    if name == "Recorder":
        from .recorder import Recorder
        return Recorder
    raise AttributeError(name)
