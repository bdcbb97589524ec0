"""What can be wrong with a batch, judged when something else of its update is bad.

`of` reads the fields of one micro-step and the calls of losses, and gives an Evidence for each oddity. Which of them may be told as
the first bad thing is the input gate's to say: healthy programs have missing values, garbage under padding and -inf in masks.
"""
from __future__ import annotations

import ctypes
import dataclasses
import re
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _leaves, _native
from .batch import ADDITIVE, FLOAT, LABELS, LENGTHS, MASK, POSITIONS, Field
from .labels import Seen, judge, short_rows

_KINDS = {"NaN": abi.KIND_NAN, "+Inf": abi.KIND_POS_INF, "-Inf": abi.KIND_NEG_INF}
_POSITIONS = re.compile(r"pos|wpe")
_SHIFTING = ("CausalLM", "LMHead", "DoubleHeads")  # class names of transformers that compare the labels from the second on


@dataclasses.dataclass
class Evidence:
    """One oddity of a batch. index: flat, in `shape`. certain: it may be reported as a finding; reported: it was."""

    text: str
    field: str
    shape: Tuple[int, ...]
    micro: int
    kind: int
    what: int  # abi.FIELD_*
    count: int
    index: int
    value: int = 0
    low: int = 0
    high: int = 0
    stats: Optional[abi.ScanResult] = None
    certain: bool = True
    needs_bad_loss: bool = False
    reported: bool = False

    @property
    def key(self) -> Tuple[str, int]:
        """Oddities of one sort."""
        return f"{self.field}/{self.what}", self.kind

    def finding(self, site: int) -> abi.Finding:
        """As the library takes it."""
        out = abi.Finding.new(site=site, boundary=abi.INPUT, micro_step=self.micro, kind=self.kind, field=self.what,
                              count=self.count, first_index=self.index, value=self.value, low=self.low, high=self.high)
        if self.stats is not None:
            out.stats = self.stats
        return out


def of(fields: Sequence[Field], calls: Sequence[Seen], roots: Sequence[str], samples: Optional[Sequence[int]],
       field_of: Callable[[torch.Tensor], Optional[Field]]) -> List[Evidence]:
    """All oddities of one micro-step, in the order of the fields. roots: class names. samples: dataset index of each row."""
    out: List[Evidence] = []
    masks = [field for field in fields if field.role == MASK and field.tensor.dim() == 2 and field.true_hides is not None]
    for field in fields:
        if not field.tensor.numel() or field.tensor.is_meta or field.tensor.layout != torch.strided:
            continue
        found: Optional[Evidence] = None
        if field.role in (FLOAT, ADDITIVE):
            found = _floats(field, masks, samples)
        elif field.role == MASK:
            found = _empty_rows(field, samples)
        elif field.role == LENGTHS:
            found = _lengths(field, samples)
        if found is not None:
            if field.changed:
                found.certain = False
                found.text += "; it was written to after it entered, so what entered is not known"
            out.append(found)
    labelled = [field for field in fields if field.role == LABELS]
    for call in calls:
        found = _call(call, field_of(call.target) or (labelled[0] if len(labelled) == 1 else None), samples)
        if found is not None:
            out.append(found)
    if not any(call.name != "ctc_loss" for call in calls):
        judged = (_labels(field, roots) for field in labelled if not field.changed)
        out += [evidence for evidence in judged if evidence is not None]
    return out


def _at(index: int, shape: Sequence[int]) -> str:
    return str(list(_leaves.unravel(index, tuple(shape)))) if shape else "[]"


def _sample(row: int, rows: int, samples: Optional[Sequence[int]]) -> str:
    return f" (sample {samples[row]})" if samples is not None and len(samples) == rows and 0 <= row < rows else ""


def _row_of(index: int, shape: Sequence[int]) -> int:
    return _leaves.unravel(index, tuple(shape))[0] if shape else 0


# ---- floats ----------------------------------------------------------------------------------------------------------------------

def _floats(field: Field, masks: Sequence[Field], samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    leaf = _leaves.look(field.tensor)
    if leaf is None or leaf.why or (leaf.view is None and leaf.tensor is None):
        return None
    counts = _leaves.count(leaf)
    if counts.first_index is None:
        return None
    if counts.nan == 0 and counts.pos_inf == 0 and (field.role == ADDITIVE or _only_zero_and_inf(field.tensor)):
        return _hidden_rows(field, samples)
    shape = tuple(field.tensor.shape)
    row = _row_of(counts.first_index, shape)
    text = (f"batch field {field.name} {list(shape)} holds {counts.bad:,} {_words(counts)}, first at "
            f"{_at(counts.first_index, shape)}{_sample(row, shape[0] if shape else 0, samples)}")
    kind = _KINDS[counts.first_kind]
    out = Evidence(text, field.name, shape, field.micro, kind, abi.FIELD_TENSOR, counts.bad, counts.first_index)
    if leaf.view is not None:
        stats = abi.ScanResult.new()
        _native.call(_native.lib().fb_scan, ctypes.byref(leaf.view), ctypes.byref(stats))
        out.stats = stats
    hidden = _under_padding(field, masks)
    if hidden:
        out.certain = False
        out.text += f", all of it where {hidden} says padding (0 times NaN is NaN: it may reach a sum all the same)"
    return out


def _words(counts: _leaves.Counts) -> str:
    parts = [(counts.nan, "NaN"), (counts.pos_inf, "+Inf"), (counts.neg_inf, "-Inf")]
    there = [(count, name) for count, name in parts if count]
    if len(there) == 1:
        return there[0][1]
    return "non-finite numbers (" + ", ".join(f"{count:,} {name}" for count, name in there) + ")"


def _only_zero_and_inf(tensor: torch.Tensor) -> bool:
    """An additive mask by another name: nothing but 0 and -Inf, both of them."""
    zero = tensor == 0
    return bool(zero.any()) and bool(torch.logical_or(zero, tensor == -float("inf")).all())


def _under_padding(field: Field, masks: Sequence[Field]) -> str:
    """Name of a mask whose padding covers all that is bad in the field; "" where there is none."""
    tensor = field.tensor
    for mask in masks:
        if tensor.dim() < 2 or tensor.shape[:2] != mask.tensor.shape or tensor.device != mask.tensor.device:
            continue
        bad = torch.logical_not(torch.isfinite(tensor.detach())).reshape(*tensor.shape[:2], -1).any(-1)
        shown = mask.tensor != 0
        if mask.true_hides:
            shown = torch.logical_not(shown)
        if not bool(torch.logical_and(bad, shown).any()):
            return mask.name
    return ""


# ---- masks and lengths -----------------------------------------------------------------------------------------------------------

def _rows(field: Field, empty: torch.Tensor, samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    """empty: one bool a row of the last dimension, flat."""
    count = int(empty.sum())
    if not count:
        return None
    shape = tuple(field.tensor.shape)
    row = int(empty.to(torch.uint8).argmax())
    index = row * shape[-1]
    place = "row " + (_at(index, shape)[1:-1].rpartition(",")[0].replace(" ", "") or "0") if len(shape) > 2 else f"row {row}"
    text = (f"{place} of {field.name} {list(shape)} lets nothing in{_sample(_row_of(index, shape), shape[0], samples)}"
            f"{'' if count == 1 else f', and {count - 1:,} more rows'}: a softmax over it is 0/0")
    return Evidence(text, field.name, shape, field.micro, abi.KIND_ALL_IGNORED, abi.FIELD_MASK, count, index, value=row)


def _empty_rows(field: Field, samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    """A mask of 0 and 1, (B,T) or with a dimension for heads and queries. Where it is not known what 1 means nothing is said."""
    if field.true_hides is None or field.tensor.dim() < 2:
        return None
    shown = field.tensor.detach() != 0
    if field.true_hides:
        shown = torch.logical_not(shown)
    return _rows(field, torch.logical_not(shown.any(-1)).reshape(-1), samples)


def _hidden_rows(field: Field, samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    """An additive mask: rows of nothing but -Inf."""
    if field.tensor.dim() < 2:
        return None
    return _rows(field, (field.tensor.detach() == -float("inf")).all(-1).reshape(-1), samples)


def _lengths(field: Field, samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    flat = field.tensor.detach().reshape(-1)
    bad = flat < 1
    count = int(bad.sum())
    if not count or flat.is_floating_point():
        return None
    row = int(bad.to(torch.uint8).argmax())
    text = f"{field.name}[{row}] is {int(flat[row])}{_sample(row, flat.numel(), samples)}: a row without a single element"
    return Evidence(text, field.name, tuple(field.tensor.shape), field.micro, abi.KIND_OUT_OF_RANGE, abi.FIELD_LENGTHS, count, row,
                    value=int(flat[row]), low=1, high=abi.INT64_MAX)


# ---- labels ----------------------------------------------------------------------------------------------------------------------

def place(call: Seen, field: Optional[Field]) -> Tuple[str, Tuple[int, ...]]:
    """(name, shape in which a flat index of the target is told): those of the field where the target is it in another shape, and
    the target's own where it is a part of it or was made from it."""
    if field is None:
        return f"target of {call.name}", tuple(call.target.shape)
    same = field.tensor.numel() == call.target.numel() and field.tensor.is_contiguous()
    return (field.name, tuple(field.tensor.shape)) if same else (f"{field.name} as {call.name} had it", tuple(call.target.shape))


def _call(call: Seen, source: Optional[Field], samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    if call.changed:
        return None
    field, shape = place(call, source)
    if call.lengths is not None:
        short = short_rows(call)
        if not short:
            return None
        row, have, need = short[0]
        sample = _sample(row, len(samples) if samples else 0, samples)
        text = f"row {row} of ctc_loss{sample} has {have} frames for {need} labels: no path, its loss is infinite"
        return Evidence(text, field, shape, call.micro, abi.KIND_OUT_OF_RANGE, abi.FIELD_LENGTHS, len(short), row, value=have,
                        low=need, high=abi.INT64_MAX, needs_bad_loss=True)
    found = judge(call.target, call.classes, call.ignore_index, call.weight)
    if not found.all_ignored:
        return None
    text = f"all {found.total:,} labels of {call.name} are left out of it (ignore index {call.ignore_index}"
    text += ", or a class of weight 0)" if call.weight is not None else ")"
    text += ": their mean is 0/0" if call.reduction == "mean" else ": their sum is 0, and its mean 0/0"
    return Evidence(text, field, shape, call.micro, abi.KIND_ALL_IGNORED, abi.FIELD_LABELS, found.total, 0, value=call.ignore_index,
                    needs_bad_loss=True)


def _labels(field: Field, roots: Sequence[str]) -> Optional[Evidence]:
    """Labels whose loss was not seen: it was compiled, or is the program's own."""
    tensor = field.tensor.detach()
    if tensor.is_floating_point() or not tensor.dim():
        return None
    shifted = tensor.dim() >= 2 and any(word in root for root in roots for word in _SHIFTING)
    seen = tensor[..., 1:] if shifted else tensor
    found = judge(seen, 0)
    if not found.all_ignored:
        return None
    first = shifted and bool((tensor[..., :1] != -100).any())
    behind = " behind the first column, which a causal model does not predict," if first else ""
    text = (f"all {found.total:,} labels in {field.name}{behind} are -100, the index that PyTorch's losses leave out: "
            f"their mean is 0/0")
    return Evidence(text, field.name, tuple(field.tensor.shape), field.micro, abi.KIND_ALL_IGNORED, abi.FIELD_LABELS, found.total,
                    0, value=-100, needs_bad_loss=True)


# ---- out of range ----------------------------------------------------------------------------------------------------------------

def _why_outside(value: int, size: int, ignored: Optional[int] = None) -> str:
    """What a number that is out of range looks like; "" where it looks like nothing."""
    if value == -100 and ignored != -100:
        return "; -100 marks labels that are left out"
    for bits in (16, 32):
        if value < -128 and 0 <= value + (1 << bits) < size:
            signed = f", as if ids were stored in {bits} bits with a sign" if value >= -(1 << (bits - 1)) else ""
            return f"; it equals {value + (1 << bits)} - {1 << bits}{signed}"
        for mark in (-100, -1):
            if value == (1 << bits) + mark:
                return f"; it equals {1 << bits} - {-mark}, as if {mark} was stored in {bits} bits without a sign"
    if value == size:
        return "; it is one too large, as if ids counted from 1, or the table had not grown with the vocabulary"
    return ""


def ids_outside(ids: torch.Tensor, rows: int, field: Optional[Field], table: str, micro: int,
                samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    """Ids that an embedding of `rows` rows does not have; None where all are there."""
    flat = ids.detach().reshape(-1)
    bad = torch.logical_or(flat < 0, flat >= rows)
    count = int(bad.sum())
    if not count:
        return None
    index, shape = int(bad.to(torch.uint8).argmax()), tuple(ids.shape)
    value = int(flat[index])
    name = field.name if field is not None else "ids"
    positions = (field.role == POSITIONS) if field is not None else bool(_POSITIONS.search(table.rpartition(".")[2]))
    row = _row_of(index, shape)
    size = f"{rows:,} rows"
    text = (f"{name}{_at(index, shape)} is {value}{_sample(row, shape[0] if shape else 0, samples)}, and {table} has {size} "
            f"(0 .. {rows - 1}){_why_outside(value, rows)}")
    if count > 1:
        text += f"; {count:,} ids are out of range"
    what = abi.FIELD_POSITIONS if positions else abi.FIELD_TOKENS
    return Evidence(text, name, shape, micro, abi.KIND_OUT_OF_RANGE, what, count, index, value=value, low=0, high=rows - 1)


def labels_outside(call: Seen, source: Optional[Field], samples: Optional[Sequence[int]]) -> Optional[Evidence]:
    """Labels that are no class of the logits; None where all are."""
    found = judge(call.target, call.classes, call.ignore_index)
    if not found.outside:
        return None
    field, shape = place(call, source)
    sample = _sample(_row_of(found.first, shape), shape[0] if shape else 0, samples)
    text = (f"{field}{_at(found.first, shape)} is {found.value}{sample}, and {call.name} was given {call.classes:,} "
            f"classes (0 .. {call.classes - 1}) and ignore_index {call.ignore_index}"
            f"{_why_outside(found.value, call.classes, call.ignore_index)}")
    if found.outside > 1:
        text += f"; {found.outside:,} labels are out of range"
    return Evidence(text, field, shape, call.micro, abi.KIND_OUT_OF_RANGE, abi.FIELD_LABELS, found.outside, found.first,
                    value=found.value, low=0, high=call.classes - 1)
