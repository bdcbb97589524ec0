"""firstbad.check: is every number in this finite?"""
from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Mapping
from typing import Any, Iterator, List, Set, Tuple

from . import _leaves
from .errors import BadTensor

_NOTHING_TO_FIND = (str, bytes, bytearray, int, bool, type(None), type, enum.Enum, range)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One array that is not finite."""

    path: str  # "model.h.0.weight", "batch['x'][3]"
    dtype: str
    shape: Tuple[int, ...]
    elements: int
    nan: int
    pos_inf: int
    neg_inf: int
    kind: str  # of the first bad element: "NaN", "+Inf", "-Inf"
    index: Tuple[int, ...]  # of that element, in `shape`
    abs_max: float  # largest finite magnitude

    def __str__(self) -> str:
        counts = [f"{n:,} {kind}" for n, kind in ((self.nan, "NaN"), (self.pos_inf, "+Inf"), (self.neg_inf, "-Inf")) if n]
        place = f", the first at {list(self.index)}" if self.index else ""
        return (f"{self.path or 'the value'} ({self.dtype} {list(self.shape)}) holds {' and '.join(counts)} of {self.elements:,}"
                f"{place}; largest finite magnitude {self.abs_max:.4g}")


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """What was looked at. Arrays of integers have nothing to find, and are counted in `tensors` alone."""

    tensors: int
    elements: int  # in them
    checked: int  # of these: of a format that has codes for NaN or Inf, each looked at
    findings: Tuple[Finding, ...]
    passed_over: Tuple[Tuple[str, str], ...]  # (path, why): not looked at

    @property
    def finite(self) -> bool:
        """Nothing bad was found; `passed_over` says what was not looked at."""
        return not self.findings

    @property
    def bad(self) -> int:
        return sum(found.nan + found.pos_inf + found.neg_inf for found in self.findings)


def check(tree: Any, name: str = "", *, raises: bool = True, allow_neg_inf: bool = False) -> CheckReport:
    """Look at every number in a tensor, or in all tensors of nested dicts, lists, tuples, dataclasses, modules and optimizers.

    tree           torch, numpy, JAX, anything with __array_interface__ or __dlpack__; floats; FP8, sparse and complex too
    name           how it is called in the message
    raises         False: the report is returned, whatever it says
    allow_neg_inf  -Inf is meant to be there, as in an attention mask
    Returns a CheckReport. Raises BadTensor for the first array that is not finite, with path, kind, index and the whole report;
    TypeError for something that holds no numbers at all, since "finite" would say nothing. Changes nothing.
    Cost: one read, in C and on all threads; on a device by torch's own operations, with one wait an array.
    """
    tensors = elements = checked = 0
    findings: List[Finding] = []
    passed_over: List[Tuple[str, str]] = []
    for path, value in _walk(tree, name, set()):
        leaf = _leaves.look(value)
        if leaf is None or leaf.why:
            passed_over.append((path, leaf.why if leaf else f"a {type(value).__name__} is no array"))
            continue
        counts = _leaves.count(leaf)
        tensors += 1
        elements += counts.elements
        checked += counts.elements if counts.checked else 0
        if allow_neg_inf and counts.bad == counts.neg_inf:
            continue
        if counts.first_index is not None:
            findings.append(Finding(path, leaf.dtype, leaf.shape, counts.elements, counts.nan, counts.pos_inf, counts.neg_inf,
                                    counts.first_kind, leaf.index(counts.first_index), counts.abs_max))
    if not tensors and (passed_over or isinstance(tree, _NOTHING_TO_FIND)):
        why = f": {passed_over[0][1]}" if passed_over else ""
        raise TypeError(f"firstbad.check looks at arrays, and this {type(tree).__name__} holds none{why}")
    report = CheckReport(tensors, elements, checked, tuple(findings), tuple(passed_over))
    if findings and raises:
        more = f"; {len(findings):,} of {tensors:,} arrays are bad" if tensors > 1 else ""
        raise BadTensor(f"not finite: {findings[0]}{more}", path=findings[0].path, kind=findings[0].kind, index=findings[0].index,
                        report=report)
    return report


def _walk(value: Any, path: str, above: Set[int]) -> Iterator[Tuple[str, Any]]:
    """Every leaf with its path. A container within itself is entered once."""
    if isinstance(value, _NOTHING_TO_FIND):
        return
    if id(value) in above:
        return
    inner = above | {id(value)}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        named = list(value.named_parameters()) + list(value.named_buffers())
        for key, part in named:
            yield from _walk(part, _dot(path, key), inner)
    elif torch is not None and isinstance(value, torch.optim.Optimizer):
        yield from _walk(value.state_dict()["state"], _dot(path, "state"), inner)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _walk(part, _dot(path, key) if isinstance(key, str) else f"{path}[{key!r}]", inner)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key in value._fields:
            yield from _walk(getattr(value, key), _dot(path, key), inner)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for i, part in enumerate(value):
            yield from _walk(part, f"{path}[{i}]", inner)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name), _dot(path, field.name), inner)
    elif getattr(getattr(value, "dtype", None), "names", None) and hasattr(value, "__array_interface__"):
        for key in value.dtype.names:  # a structured array of numpy
            yield from _walk(value[key], _dot(path, key), inner)
    else:
        yield path, value


def _dot(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
