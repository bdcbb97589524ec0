"""Tensors that are not in host memory: looked at by torch's own operations where they lie, with one wait for the device an update.

    look     enqueue: a norm of each tensor, by device and format; nothing waits
    check    at the gate: wait once, and tell what was found

A norm is one read and a number a tensor. A norm that is not finite is no proof: the squares of finite numbers overflow, so such a
tensor is looked at element by element, which waits again and happens on a bad step only.

While a CUDA graph is captured nothing of this may run: what is captured would be replayed without us.
"""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _native
from . import views

COPY_BYTES_MAX = 1 << 28  # a bad tensor up to this size is brought to the host, and described there as any other
_SUMMED = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Codes that are not finite: (mask, value from which a masked code is bad). Source: OCP 8-bit Floating Point Specification.
_EIGHT_BITS = {
    "float8_e4m3fn": (0x7F, 0x7F), "float8_e5m2": (0x7F, 0x7C), "float8_e4m3fnuz": (0xFF, 0x80), "float8_e5m2fnuz": (0xFF, 0x80),
    "float8_e8m0fnu": (0xFF, 0xFF)}


class Looked(NamedTuple):
    """Tensors whose flags are on their way: flags[i] of tensors[i] is above 0 where its norm is not finite."""

    boundary: int
    micro: int
    tensors: List[Tuple[torch.Tensor, int]]  # (tensor as it was handed over, site)
    flags: torch.Tensor  # (n,) float32, on the device


class Pending:
    """What was looked at in the update that runs, and not read yet."""

    def __init__(self) -> None:
        self.update: Any = None
        self.looked: List[Looked] = []

    def of(self, update: Any) -> List[Looked]:
        """Of this update; what another one left is dropped."""
        if self.update is not update:
            self.update, self.looked = update, []
        return self.looked


_pending = Pending()
waits = 0  # times that a host waited for a device here, in this process


def capturing() -> bool:
    """A CUDA graph is being captured on this thread's stream."""
    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def look(session: Any, boundary: int, gradients: Sequence[Tuple[Any, int]], micro: Optional[int] = None) -> None:
    """Enqueue a look at tensors; (tensor, site) each. check() tells what came of it. Nothing waits, nothing is changed.

    Values are those of now, in the order of the stream that is current. Cost: some kernels for each device and format.
    """
    update = session.update
    if not gradients:
        return
    if capturing():
        session.coverage.note("updates that are captured in a CUDA graph: nothing looks at them")
        return
    by_device: Dict[torch.device, List[Tuple[torch.Tensor, torch.Tensor, int]]] = {}
    for tensor, site in gradients:
        memory = views.memory_of(tensor.detach())
        if memory is None:
            session.coverage.note("tensors of a kind that cannot be read (meta, quantised, a layout that torch does not open)")
        elif memory.numel() and (memory.is_floating_point() or memory.is_complex()):
            by_device.setdefault(memory.device, []).append((tensor, memory, site))
    looked = _pending.of(update)
    for items in by_device.values():
        with torch.no_grad():
            flags = _flags([memory for _, memory, _ in items])
        named = [(tensor, site) for tensor, _, site in items]
        looked.append(Looked(boundary, update.micro if micro is None else micro, named, flags))


def _flags(tensors: List[torch.Tensor]) -> torch.Tensor:
    """(n,) float32 on the device of the tensors: 0.0 where the norm is finite, 1.0 where it is not."""
    out: List[Optional[torch.Tensor]] = [None] * len(tensors)
    groups: Dict[torch.dtype, List[int]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.is_complex():
            tensor = tensors[index] = torch.view_as_real(tensor.resolve_conj())
        if tensor.is_neg():
            tensors[index] = tensor.resolve_neg()
        groups.setdefault(tensor.dtype, []).append(index)
    for dtype, indices in groups.items():
        if dtype in _SUMMED:
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            for i, norm in zip(indices, _norms([tensors[i] for i in indices], wide)):
                out[i] = norm
        else:
            for i in indices:
                out[i] = torch.where(_bad_codes(tensors[i]).any(), float("inf"), 0.0)
    stacked = torch.stack([norm.to(torch.float32) if norm.dtype != torch.float64 else torch.where(
        torch.isfinite(norm), 0.0, float("inf")).to(torch.float32) for norm in out if norm is not None])
    return (~torch.isfinite(stacked)).to(torch.float32)


def _norms(tensors: List[torch.Tensor], dtype: torch.dtype) -> Sequence[torch.Tensor]:
    """Norms summed in `dtype`: in 16 bits the squares would overflow in any larger tensor."""
    try:
        return torch._foreach_norm(tensors, 2, dtype=dtype)  # type: ignore[no-any-return]
    except TypeError:  # torch 2.2
        return torch._foreach_norm([tensor.to(dtype) for tensor in tensors], 2)  # type: ignore[no-any-return]


def _bad_codes(tensor: torch.Tensor) -> torch.Tensor:
    """True where an element of a format of 8 bits is not finite."""
    mask, least = _EIGHT_BITS[str(tensor.dtype).replace("torch.", "")]
    return (tensor.view(torch.uint8) & mask) >= least


def check(session: Any, boundary: int, gradients: Sequence[Tuple[Any, int]], losses: Sequence[Tuple[Any, int]] = ()) -> None:
    """At the gate: look at these, and tell the library of them and of what was enqueued before in this update.

    losses  (scalar, micro-step). Waits once for the device; once more where something is bad. Raises LibraryError.
    """
    look(session, boundary, gradients)
    for loss, micro in losses:
        look(session, abi.LOSS, [(loss, session.loss_site)], micro)
    looked = _pending.of(session.update)
    if not looked:
        return
    flags = _to_host([one.flags for one in looked])
    lib = _native.lib()
    findings: List[abi.Finding] = []
    at = 0
    for one in looked:
        for index, (tensor, site) in enumerate(one.tensors):
            if flags[at + index]:
                with torch.no_grad():
                    found = examine(session, tensor, site, one.boundary, one.micro)
                if found is not None:
                    findings.append(found)
        at += len(one.tensors)
    for one in looked:
        array = (abi.View * len(one.tensors))()
        for view, (tensor, site) in zip(array, one.tensors):
            memory = views.memory_of(tensor.detach())
            view.site, view.device = site, -1
            view.dtype, view.count = (views.DTYPES[memory.dtype], memory.numel()) if memory is not None else (0, 0)
        _native.call(lib.fb_step_looked, session.run, one.boundary, array, len(one.tensors))
        if one.boundary == abi.LOCAL_GRAD and session.world == 1:  # nothing reduces them
            _native.call(lib.fb_step_looked, session.run, abi.REDUCED_GRAD, array, len(one.tensors))
    if findings:
        _native.call(lib.fb_step_report, session.run, (abi.Finding * len(findings))(*findings), len(findings))
    looked.clear()


def _to_host(flags: List[torch.Tensor]) -> List[float]:
    """All flags, with one wait: what lies on other devices is brought to the first, which no host waits for."""
    global waits
    waits += 1
    home = flags[0].device
    values: List[float] = torch.cat([one.to(home, non_blocking=True) for one in flags]).tolist()
    return values


def examine(session: Any, tensor: torch.Tensor, site: int, boundary: int, micro: int) -> Optional[abi.Finding]:
    """Element by element: a Finding, or None when all elements are finite and only the norm was not. Waits."""
    global waits
    memory = views.memory_of(tensor.detach())
    if memory is None:
        return None
    if memory.numel() * memory.element_size() <= COPY_BYTES_MAX:
        waits += 1
        found: abi.Finding = session.gates.finding(memory.to("cpu"), site, boundary, micro)
        return found if found.kind != abi.KIND_NONE else None
    return count(memory, site, boundary, micro)


def count(memory: torch.Tensor, site: int, boundary: int, micro: int) -> Optional[abi.Finding]:
    """The same, counted where the tensor lies: kinds, and the first index; no other statistics."""
    global waits
    if memory.is_complex():
        parts = torch.view_as_real(memory.resolve_conj())
        nan, pos, neg = (kind.any(-1) for kind in _kinds(parts))
        pos, neg = pos & ~nan, neg & ~nan & ~pos
    else:
        nan, pos, neg = _kinds(memory)
    bad = (nan | pos | neg).reshape(-1)
    counts = torch.stack([nan.sum(), pos.sum(), neg.sum(), torch.argmax(bad.to(torch.uint8))])
    waits += 1
    nans, positive, negative, first = (int(v) for v in counts.tolist())
    if not nans + positive + negative:
        return None
    index = torch.tensor(first, device=bad.device)
    kinds = torch.stack([nan.reshape(-1)[index], pos.reshape(-1)[index]])
    waits += 1
    is_nan, is_pos = kinds.tolist()
    out = abi.Finding.new(site=site, boundary=boundary, micro_step=micro, count=nans + positive + negative, first_index=first,
                          kind=abi.KIND_NAN if is_nan else abi.KIND_POS_INF if is_pos else abi.KIND_NEG_INF)
    stats = out.stats
    stats.dtype, stats.elements, stats.checked = views.DTYPES[memory.dtype], memory.numel(), 1
    stats.nan, stats.pos_inf, stats.neg_inf = nans, positive, negative
    stats.first_index, stats.first_kind = first, out.kind
    return out


def _kinds(tensor: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(NaN, +Inf, -Inf), each a bool of the tensor's shape."""
    if tensor.dtype in _SUMMED:
        return torch.isnan(tensor), torch.isposinf(tensor), torch.isneginf(tensor)
    codes = tensor.view(torch.uint8)
    bad = _bad_codes(tensor)
    if tensor.dtype == getattr(torch, "float8_e5m2", None):
        infinite = (codes & 0x7F) == 0x7C
        return bad & ~infinite, infinite & (codes < 0x80), infinite & (codes >= 0x80)
    return bad, torch.zeros_like(bad), torch.zeros_like(bad)
