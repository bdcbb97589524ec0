"""A replay on the tape of firstbad/locate.h: every aten operator that the dispatcher runs, as it runs.

What PyTorch does that the tape has no word for is turned into dataflow here:

  a view             no operator. What reads it reads an "alias" of the tensors that lie there (places.py)
  an operator in     makes a tensor that lies over what was there before, or something bad that was written over would still count
  place
  copy_, fill_, ...  do not read what they write over
  .item()            makes a number. An operator that is handed a number that is not finite reads those that .item() gave
  empty              is filled with zeros, so that replays are equal and hold no NaN of our making; `unwritten` counts who read it
  collectives        of c10d and functional ones: their outputs come from all ranks
"""
from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _abi as abi
from .. import _native
from .places import Geometry, Part, Places, owners
from .where import Where

_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "set_", "cauchy_",
               "log_normal_", "geometric_", "randperm"}
_MAKES_MASKS = {"masked_fill", "masked_fill_", "fill_", "full", "full_like", "new_full", "scalar_tensor", "fill", "where",
                "constant_pad_nd", "index_fill", "index_fill_", "masked_fill_"}
_KEEPS_MASKS = {
    "where",
    "triu",
    "tril",
    "triu_",
    "tril_",
    "clone",
    "copy_",
    "_to_copy",
    "add",
    "add_",
    "cat",
    "stack",
    "index",
    "baddbmm",
    "masked_fill",
    "masked_fill_",
    "index_put",
    "index_put_",
    "scatter",
    "scatter_",
    "gather",
    "repeat",
    "roll",
    "index_select",
    "slice_scatter",
    "select_scatter",
    "constant_pad_nd",
    "index_fill",
    "index_fill_",
    "sub",
    "neg",
    "minimum",
    "maximum",
    "flip",
    # A number chosen from a mask, or summed up in logarithms over nothing else, is -Inf as the mask is.
    "amax",
    "max",
    "amin",
    "min",
    "topk",
    "sort",
    "cummax",
    "logsumexp",
    "logaddexp",
    "logcumsumexp",
}
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
_DTYPES = {torch.float64: abi.F64, torch.float32: abi.F32, torch.float16: abi.F16, torch.bfloat16: abi.BF16,
           torch.complex64: abi.C64, torch.complex128: abi.C128, torch.int8: abi.I8, torch.uint8: abi.U8, torch.int16: abi.I16,
           torch.int32: abi.I32, torch.int64: abi.I64, torch.bool: abi.BOOL}
for _name, _number in (("float8_e4m3fn", abi.F8_E4M3FN), ("float8_e5m2", abi.F8_E5M2), ("float8_e4m3fnuz", abi.F8_E4M3FNUZ),
                       ("float8_e5m2fnuz", abi.F8_E5M2FNUZ), ("float8_e8m0fnu", abi.F8_E8M0), ("uint16", abi.U16),
                       ("uint32", abi.U32), ("uint64", abi.U64)):
    if hasattr(torch, _name):
        _DTYPES[getattr(torch, _name)] = _number
KEPT_MAX = 256 << 20  # bytes of random draws that are kept for reruns


class Leaf(Tuple[int, Tuple[int, ...], torch.dtype]):
    """(input, shape, dtype): a tensor among the arguments of an operator; input -1: it is not read."""


@dataclasses.dataclass
class Kept:
    """What a rerun of one operator in FP64 takes: its arguments, without the tensors."""

    func: Any = None
    leaves: Sequence[Any] = ()
    spec: Any = None
    written: Tuple[int, ...] = ()  # indices of leaves that are written to
    places: Optional[Sequence[Any]] = None  # of an alias or a select: where each input lies, as a Geometry or as indices
    to: Sequence[Geometry] = ()  # of an alias: Geometry of its output
    left: Optional[torch.Tensor] = None  # of a select: indices of its elements
    values: Optional[List[torch.Tensor]] = None  # of a random operator: what it drew
    never: bool = False  # there is no such form


class TapeError(RuntimeError):
    """The tape refused what it was told; `status` is the library's."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Tape(TorchDispatchMode):
    """Tells the tape of one replay. widen: numbers of 16 bits are made in 32 (a replay in FP32). fill: what `empty` holds."""

    def __init__(self, handle: Any, where: Where, widen: bool = False, fill: float = 0.0) -> None:
        super().__init__()
        self.lib, self.handle, self.where, self.widen, self.fill = _native.lib(), handle, where, widen, fill
        self.places = Places()
        self.kept: List[Kept] = []
        self.kept_bytes = 0
        self.items: List[int] = []  # numbers of values of .item() that are not finite
        self.constants = 0
        self.unwritten = 0  # operators that read memory which nobody wrote
        self.error: Optional[int] = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler for us

    # ---- telling -----------------------------------------------------------------------------------------------------------------

    def _check(self, status: int, err: abi.Error) -> None:
        if status != abi.OK:
            self.error = status
            raise TapeError(err.text, status)

    def _value(self, tensor: torch.Tensor, name: str, flags: int, module: Optional[str]) -> Tuple[abi.TapeValue, torch.Tensor]:
        data = tensor.detach()
        if data.is_complex():
            data = data.resolve_conj()
        data = data.resolve_neg().contiguous().cpu()
        if data.dtype not in _DTYPES:
            data = data.to(torch.float32) if data.dtype.is_floating_point else data.view(torch.uint8)
        told = abi.TapeValue()
        told.size, told.flags = ctypes.sizeof(abi.TapeValue), flags
        told.module = module.encode() if module is not None else None
        told.name = name.encode()
        told.data = data.data_ptr() if data.numel() else None
        told.count, told.dtype, told.ndim = data.numel(), _DTYPES[data.dtype], data.dim() if data.dim() <= abi.DIMS_MAX else 0
        for i in range(told.ndim):
            told.shape[i] = data.shape[i]
        return told, data

    def entry(self, tensor: torch.Tensor, module: str, name: str, flags: int) -> None:
        """Something that is there before it was heard of. It lies under all that is known of that storage."""
        for dense, suffix in dense_parts(tensor):
            told, data = self._value(dense, name + suffix, flags, module)
            number, err = ctypes.c_uint32(), abi.Error()
            self._check(self.lib.fb_tape_entry(self.handle, ctypes.byref(told), ctypes.byref(number), ctypes.byref(err)), err)
            del data
            self.places.of(dense.untyped_storage()).below(Part(number.value, Geometry.of(dense), flags & abi.TAPE_MASK))

    def op(self, name: str, inputs: Sequence[int], outputs: Sequence[Tuple[torch.Tensor, str, int]], kept: Kept,
           attributes: Sequence[Tuple[str, float]] = (), flags: int = 0, module: Optional[str] = None,
           boundary: Optional[int] = None) -> List[int]:
        """outputs: [(tensor, name, flags)]. Returns their numbers."""
        count, err, at = len(outputs), abi.Error(), self.where.now()
        values = [self._value(tensor, label, mask, None) for tensor, label, mask in outputs]
        told = abi.TapeOp()
        told.size, told.flags, told.op = ctypes.sizeof(abi.TapeOp), flags, name.encode()
        told.module = (at.module if module is None else module).encode()
        told.source = at.source.encode() if at.source else None
        told.node = at.node.encode() if at.node else None
        told.boundary, told.micro_step = at.boundary if boundary is None else boundary, at.micro
        told.token, told.input_count, told.output_count, told.attribute_count = len(self.kept), len(inputs), count, len(attributes)
        told.inputs = (ctypes.c_uint32 * max(len(inputs), 1))(*inputs)
        told.outputs = (abi.TapeValue * max(count, 1))(*[value for value, _ in values])
        told.attributes = (abi.TapeAttribute * max(len(attributes), 1))(
            *[abi.TapeAttribute(key.encode(), value) for key, value in attributes])
        ids = (ctypes.c_uint32 * max(count, 1))()
        told.output_ids = ids
        self.kept.append(kept)
        self._check(self.lib.fb_tape_op_ran(self.handle, ctypes.byref(told), ctypes.byref(err)), err)
        return list(ids[:count])

    def site(self, name: str, tensor: torch.Tensor, module: str, boundary: int) -> None:
        """A place that the guard watches, under its name. It is the tensor itself."""
        for dense, suffix in dense_parts(tensor)[:1]:
            self.op("site", [self.read(dense).number], [(dense, name, 0)], Kept(), module=module, boundary=boundary)

    def collective(self, name: str, tensor: torch.Tensor) -> None:
        """`tensor` was just reduced over the ranks, in place."""
        number = self.read(tensor).number
        made, = self.op(name, [number], [(tensor, name, 0)], Kept(never=True), flags=abi.TAPE_COLLECTIVE)
        self.places.of(tensor.untyped_storage()).wrote(Part(made, Geometry.of(tensor), 0))

    # ---- reading -----------------------------------------------------------------------------------------------------------------

    def read(self, tensor: torch.Tensor) -> Part:
        memory, geometry = self.places.of(tensor.untyped_storage()), Geometry.of(tensor)
        known = memory.read.get(geometry)
        if known is None:
            known = memory.read[geometry] = self._look_up(tensor, geometry)
        self.unwritten += known.unwritten
        return known

    def _look_up(self, tensor: torch.Tensor, geometry: Geometry) -> Part:
        memory = self.places.of(tensor.untyped_storage())
        parts = owners(memory, geometry)
        if parts is None:
            # Written as it stands in the program, a number was meant: -Inf in it as well.
            self.constants += 1
            self.entry(tensor, "", f"constant.{self.constants}", abi.TAPE_MASK if tensor.numel() == 1 else 0)
            parts = owners(memory, geometry)
            assert parts is not None
        reads, places = [], []
        for part, left in parts:
            if left is None or len(parts) == 1:
                reads.append(part.number)
                places.append(part.geometry)
            else:
                number = self._select(tensor, part, left)
                reads.append(number)
                places.append(left)
        unwritten = any(part.unwritten for part, _ in parts)
        if len(parts) == 1 and parts[0][0].geometry == geometry:
            return parts[0][0]
        mask = abi.TAPE_MASK if any(part.flags & abi.TAPE_MASK for part, _ in parts) else 0
        number, = self.op("alias", reads, [(tensor, "alias", mask)], Kept(places=places, to=[geometry]))
        return Part(number, geometry, mask, unwritten)

    def _select(self, tensor: torch.Tensor, part: Part, left: torch.Tensor) -> int:
        """What is left of a part: something bad in the rest of it is nothing that can be read here."""
        place = part.geometry
        room = place.room()
        flat = torch.empty(0, dtype=place.dtype, device=tensor.device).set_(tensor.untyped_storage(), 0, (room,), (1,))
        number, = self.op("select", [part.number], [(flat[left.to(tensor.device)], "select", part.flags)],
                          Kept(places=[place], left=left))
        return number

    # ---- the dispatcher ----------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(getattr(t, "__torch_dispatch__", None) is not torch._C._disabled_torch_dispatch_impl for t in types
               if t is not torch.Tensor):
            return NotImplemented  # it unwraps itself (DTensor), and what it runs inside comes here
        if self.widen:
            args, kwargs = pytree.tree_map(_wide_dtype, (args, kwargs))
        if func.namespace in ("profiler", "prim") or _is_view(func):
            self.where.forward_made()
            return func(*args, **kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        written = written_leaves(func, args, kwargs)
        name = func._schema.name.split("::")[-1]
        blind = set(written) if name in _OVERWRITES or "out" in kwargs else set()
        inputs: List[int] = []
        flags: List[int] = []
        kept: List[Any] = []
        scalars: List[int] = []
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                kept.append(leaf)
                if isinstance(leaf, float) and not abs(leaf) < float("inf"):
                    scalars += [item for item in self.items if item not in scalars]
                continue
            dense = dense_parts(leaf)
            kept.append(Leaf((-1 if i in blind or leaf.layout != torch.strided else len(inputs), tuple(leaf.shape), leaf.dtype)))
            if i in blind:
                continue
            for part, _ in dense:
                place = self.read(part)
                inputs.append(place.number)
                flags.append(place.flags)
        self.where.forward_made()
        result = func(*args, **kwargs)
        self._ran(func, name, leaves, written, inputs + scalars, flags, Kept(func, kept, spec, tuple(written)),
                  attributes_of(func, args, kwargs), result)
        return result

    def _ran(self, func: Any, name: str, leaves: List[Any], written: List[int], inputs: List[int], flags: List[int], kept: Kept,
             attributes: List[Tuple[str, float]], result: Any) -> None:
        made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        targets = [leaves[i] for i in written]
        fresh = [t for t in made if not any(t is target for target in targets)]
        if name == "_local_scalar_dense" and leaves[0].dtype.is_floating_point:
            fresh = [torch.tensor(result, dtype=leaves[0].dtype)]
        fresh = [part for t in fresh for part, _ in dense_parts(t)
                 if not self.places.knows(part.untyped_storage())]  # the others are views
        outputs = [part for t in targets for part, _ in dense_parts(t)] + fresh
        if not outputs:
            return
        unwritten = name in _EMPTY
        if unwritten:
            for t in outputs:
                t.fill_(self.fill if t.dtype.is_floating_point or t.dtype.is_complex else 0)
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._keep_draws(name, outputs, kept)
        mask = mask_of(name, leaves, flags)
        named = [(t, name if k == 0 else f"{name}.{k}", mask) for k, t in enumerate(outputs)]
        across = abi.TAPE_COLLECTIVE if func.namespace in ("c10d", "_c10d_functional") and name != "wait_tensor" else 0
        kept.never = kept.never or unwritten or bool(across)
        ids = self.op(str(func), inputs, named, kept, attributes[:abi.TAPE_ATTRIBUTES_MAX], flags=across)
        for of, t in zip(ids, outputs):
            self.places.of(t.untyped_storage()).wrote(Part(of, Geometry.of(t), mask, unwritten))
        if name == "_local_scalar_dense":
            self.items += [of for of, t in zip(ids, outputs) if not bool(torch.isfinite(t))]

    def _keep_draws(self, name: str, outputs: List[torch.Tensor], kept: Kept) -> None:
        """In FP64 other numbers would be drawn: those of this replay are kept, or there is no rerun of it."""
        keep = outputs[1:] if name == "native_dropout" else outputs
        size = sum(t.numel() * t.element_size() for t in keep)
        if self.kept_bytes + size > KEPT_MAX:
            kept.never = True
            return
        self.kept_bytes += size
        kept.values = [t.detach().clone() for t in keep]


class Fresh(TorchDispatchMode):
    """What a Tape does to a replay, without telling anybody: fresh memory holds `fill`, 16 bits become 32 where asked for."""

    def __init__(self, fill: float, widen: bool) -> None:
        super().__init__()
        self.fill, self.widen = fill, widen

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler for us

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.widen:
            args, kwargs = pytree.tree_map(_wide_dtype, (args, kwargs))
        result = func(*args, **kwargs)
        if func._schema.name.split("::")[-1] in _EMPTY and isinstance(result, torch.Tensor) and result.layout == torch.strided:
            result.fill_(self.fill if result.dtype.is_floating_point or result.dtype.is_complex else 0)
        return result


# ---- what operators say of themselves --------------------------------------------------------------------------------------------


def dense_parts(tensor: torch.Tensor) -> List[Tuple[torch.Tensor, str]]:
    """The memory behind a tensor: itself; values and indices of a sparse one; the local part of one that is spread over ranks."""
    local = getattr(tensor, "to_local", None)
    if local is not None:
        tensor = local()
    if tensor.layout == torch.sparse_coo:
        return [(tensor._values(), ""), (tensor._indices(), ".indices")]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [(tensor.values(), ""), (tensor.crow_indices(), ".crow"), (tensor.col_indices(), ".col")]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [(tensor.values(), ""), (tensor.ccol_indices(), ".ccol"), (tensor.row_indices(), ".row")]
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return []
    return [(tensor, "")]


_views: Dict[Any, bool] = {}


def _is_view(func: Any) -> bool:
    """It returns what it was given, seen otherwise, and writes nothing."""
    known = _views.get(func)
    if known is None:
        returns = func._schema.returns
        known = bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns) and not any(
            a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
        _views[func] = known
    return known


def _wide_dtype(leaf: Any) -> Any:
    return torch.float32 if leaf in (torch.float16, torch.bfloat16) and isinstance(leaf, torch.dtype) else leaf


_IN_PLACE_C10D = ("allreduce_", "broadcast_", "reduce_", "allreduce_coalesced_")


def written_leaves(func: Any, args: Any, kwargs: Dict[str, Any]) -> List[int]:
    """Indices of the leaves that the operator writes to, by its schema: by their place, for x.copy_(x) reads what it writes."""
    writes = {argument.name for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write}
    name = func._schema.name
    # The schemas of these say nothing of what they move.
    if name == "aten::native_batch_norm" and args[5]:
        writes |= {"running_mean", "running_var"}
    if func.namespace == "c10d":
        if name.split("::")[-1] in _IN_PLACE_C10D:
            writes |= {"tensors"}
        else:
            writes |= {"output_tensors", "output_tensor", "outputs", "output"}
    found: List[int] = []
    at = 0
    for label, given in list(zip((argument.name for argument in func._schema.arguments), args)) + list(kwargs.items()):
        leaves = pytree.tree_leaves(given)
        found += [at + i for i, leaf in enumerate(leaves) if label in writes and isinstance(leaf, torch.Tensor)]
        at += len(leaves)
    return found


def mask_of(name: str, leaves: Sequence[Any], flags: Sequence[int]) -> int:
    """-Inf is meant where it was filled in, and where that was only moved or added to."""
    if name in _MAKES_MASKS and any(isinstance(leaf, (int, float)) and leaf == float("-inf") for leaf in leaves):
        return abi.TAPE_MASK
    return abi.TAPE_MASK if name in _KEEPS_MASKS and any(flags) else 0


def attributes_of(func: Any, args: Any, kwargs: Dict[str, Any]) -> List[Tuple[str, float]]:
    """Numbers that the operator was given: {"eps": 1e-5}. bool is none."""
    found = []
    for i, argument in enumerate(func._schema.arguments):
        value = kwargs.get(argument.name) if argument.name in kwargs else args[i] if i < len(args) else argument.default_value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((argument.name, float(value)))
    return found
