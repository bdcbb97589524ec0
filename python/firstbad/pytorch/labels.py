"""Labels as the loss sees them: after the shift of a language model, with the number of classes and the ignore index of the call.

`install` wraps torch.nn.functional.cross_entropy, nll_loss and ctc_loss, and embedding, whose ids are judged by inputs.py. A call
inside of an update is remembered (its target, never its logits), which costs about a microsecond; the target is read when the
update turns out bad, or when torch refused it. Code that torch.compile or TorchScript compiles calls the original, and is not seen.
"""
from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .since import is_compiling

SEEN_MAX = 1024  # calls of one update; a program with more has its last ones


@dataclasses.dataclass
class Seen:
    """One call of a loss. classes: of its input; 0 for CTC, where `lengths` are (input lengths, target lengths)."""

    name: str  # "cross_entropy"
    target: torch.Tensor
    classes: int
    ignore_index: int
    reduction: str
    weight: Optional[torch.Tensor]
    micro: int
    version: int
    lengths: Optional[Tuple[Any, Any]] = None

    @property
    def changed(self) -> bool:
        return self.version >= 0 and not self.target.is_inference() and int(self.target._version) != self.version


@dataclasses.dataclass
class Judgement:
    """What is in a target. valid: labels that count in a mean. outside: labels that are no class and not the ignore index."""

    total: int
    valid: int
    outside: int
    first: int  # flat index of the first that is outside; -1: none
    value: int  # what stands there
    classes: int
    ignore_index: int

    @property
    def all_ignored(self) -> bool:
        return self.total > 0 and self.valid == 0 and self.outside == 0


def judge(target: torch.Tensor, classes: int, ignore_index: int = -100, weight: Optional[torch.Tensor] = None) -> Judgement:
    """Look at integer labels of any shape. classes 0: not known, and nothing is outside. weight: (classes,); a label whose class
    has the weight 0 does not count. Cost: a few passes, and a wait where they lie on a device; for the bad path only."""
    flat = target.detach().reshape(-1)
    counts = flat != ignore_index
    bad = torch.logical_and(counts, torch.logical_or(flat < 0, flat >= classes)) if classes else torch.zeros_like(counts)
    outside = int(bad.sum())
    first = int(bad.to(torch.uint8).argmax()) if outside else -1
    if weight is not None and classes and not outside:
        inside = torch.where(counts, flat, torch.zeros_like(flat)).to(torch.int64)
        counts = torch.logical_and(counts, weight.detach().to(flat.device)[inside] != 0)
    value = int(flat[first]) if outside else 0
    return Judgement(flat.numel(), int(counts.sum()) - outside, outside, first, value, classes, ignore_index)


class Watcher:
    """What an InputGate gives: where calls are put, and who is told of labels and ids that torch refuses."""

    micro = 0
    seen: List[Seen]

    def refused_labels(self, call: Seen) -> None:
        raise NotImplementedError

    def look_up(self, ids: Any, weight: Any) -> None:
        raise NotImplementedError

    def refused_ids(self, ids: Any, weight: Any) -> None:
        raise NotImplementedError


watcher: Optional[Watcher] = None  # of the update that runs; None between updates, in replays, and where nothing is guarded


_is_wrapped = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", None)  # 2.2 has it


def plain(tensor: Any) -> bool:
    """A tensor whose numbers can be had: no tracing, no transform of functorch."""
    if type(tensor) is not torch.Tensor or is_compiling():
        return False
    return _is_wrapped is None or not _is_wrapped(tensor)


def argument(args: Tuple[Any, ...], kwargs: Dict[str, Any], at: int, name: str, default: Any = None) -> Any:
    return args[at] if len(args) > at else kwargs.get(name, default)


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _remember(mine: Watcher, call: Seen) -> Seen:
    if len(mine.seen) >= SEEN_MAX:
        del mine.seen[0]
    mine.seen.append(call)
    return call


def _look(name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Seen]:
    """cross_entropy and nll_loss have their arguments in one order."""
    mine = watcher
    logits, target = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "target")
    if mine is None or not plain(target) or target.is_floating_point() or not isinstance(logits, torch.Tensor) or not logits.dim():
        return None
    reduction = _reduction(argument(args, kwargs, 3, "size_average"), argument(args, kwargs, 5, "reduce"),
                           argument(args, kwargs, 6, "reduction", "mean"))
    classes, ignore_index = int(logits.shape[1 if logits.dim() > 1 else 0]), int(argument(args, kwargs, 4, "ignore_index", -100))
    weight = argument(args, kwargs, 2, "weight")
    return _remember(mine, Seen(name, target, classes, ignore_index, reduction, weight, mine.micro, _version(target)))


def scriptable(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """`wrapper` so that torch.jit.script and torch.compile take `original` in its place: they know these two attributes, since
    torch.jit.script_if_tracing sets them. A wrapper with *args would break the scripts of a program that never heard of us."""
    functools.update_wrapper(wrapper, original)
    wrapper.__dict__["__script_if_tracing_wrapper"] = True
    wrapper.__dict__["__original_fn"] = original
    return wrapper


def _wrapped(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def factory(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            call = None if watcher is None else _look(name, args, kwargs)
            try:
                return original(*args, **kwargs)
            except IndexError:
                if call is not None and watcher is not None:
                    watcher.refused_labels(call)
                raise

        return scriptable(wrapper, original)

    return factory


def _wrap_embedding(original: Callable[..., Any]) -> Callable[..., Any]:
    def embedding(*args: Any, **kwargs: Any) -> Any:
        mine = watcher
        if mine is None:
            return original(*args, **kwargs)
        ids, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
        mine.look_up(ids, weight)
        try:
            return original(*args, **kwargs)
        except (IndexError, RuntimeError):
            mine.refused_ids(ids, weight)
            raise

    return scriptable(embedding, original)


def _wrap_ctc_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    def ctc_loss(*args: Any, **kwargs: Any) -> Any:
        mine, target = watcher, argument(args, kwargs, 1, "targets")
        if mine is not None and plain(target) and not argument(args, kwargs, 6, "zero_infinity", False):
            lengths = argument(args, kwargs, 2, "input_lengths"), argument(args, kwargs, 3, "target_lengths")
            reduction = str(argument(args, kwargs, 5, "reduction", "mean"))
            _remember(mine, Seen("ctc_loss", target, 0, -1, reduction, None, mine.micro, _version(target), lengths))
        return original(*args, **kwargs)

    return scriptable(ctc_loss, original)


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """The deprecated pair of flags wins over `reduction`, as in torch."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def short_rows(call: Seen) -> List[Tuple[int, int, int]]:
    """(row, frames, labels) of a CTC call where a row has fewer frames than labels: its loss is infinite for certain. (With labels
    that repeat it is so earlier; those rows are not told.)"""
    if call.lengths is None:
        return []
    frames, wanted = (torch.as_tensor(lengths).reshape(-1).tolist() for lengths in call.lengths)
    return [(row, int(have), int(need)) for row, (have, need) in enumerate(zip(frames, wanted)) if need > have]


def install(patches: Any) -> None:
    """Wrap the losses, and what looks ids up (inputs.py). patches: patch.Patches, whose wrap(owner, name, factory) puts
    factory(original) in the place of owner.name."""
    functional = torch.nn.functional
    patches.wrap(functional, "cross_entropy", _wrapped("cross_entropy"))
    patches.wrap(functional, "nll_loss", _wrapped("nll_loss"))
    patches.wrap(functional, "ctc_loss", _wrap_ctc_loss)
    # nn.Embedding calls the function, so modules need no hook: one would be pickled with the model, and traced by torch.compile.
    patches.wrap(functional, "embedding", _wrap_embedding)
    patches.wrap(functional, "embedding_bag", _wrap_embedding)
