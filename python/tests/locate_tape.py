"""A PyTorch program on the tape of firstbad/locate.h: every aten operator that the dispatcher runs, as it runs.

What PyTorch does that the tape has no word for is turned into dataflow here:

  a view             no operator. What reads it reads an "alias", made of the tensors that lie there
  an operator in     makes a tensor that lies over what was there before. Who lies where is followed element by element, or
  place              something bad that was written over would still count
  copy_, fill_, ...  do not read what they write over
  .item()            makes a number. An operator that is handed a number that is not finite reads those that .item() gave
"""
import ctypes
import dataclasses
import typing

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from locate_structs import DTYPES, MASK, OK, Attribute, Error, Op, Value

OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "set_"}
MAKES_MASKS = {"masked_fill", "masked_fill_", "fill_", "full", "full_like", "new_full", "scalar_tensor", "fill"}
KEEPS_MASKS = {"where", "triu", "tril", "triu_", "tril_", "clone", "copy_", "_to_copy", "add", "add_", "cat", "stack", "index",
               "baddbmm"}


class Geometry(typing.NamedTuple):
    """Where a tensor lies in its storage, in elements."""
    dtype: torch.dtype
    offset: int
    shape: tuple
    strides: tuple

    @staticmethod
    def of(tensor):
        return Geometry(tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))

    def on(self, elements):
        return elements.as_strided(self.shape, self.strides, self.offset)

    def on_bytes(self, base):
        size = self.dtype.itemsize
        return base.as_strided((*self.shape, size), (*(n * size for n in self.strides), 1), self.offset * size)

    def holds(self, other):
        """Every element of the other is surely one of it."""
        whole = self.offset == 0 and torch.Size(self.shape).numel() == self.room() and all(self.strides)
        return self.dtype == other.dtype and (self == other or (whole and other.room() <= self.room()))

    def room(self):
        """Elements of the storage up to the last that it holds."""
        return 0 if 0 in self.shape else self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))


class Part(typing.NamedTuple):
    """A tensor of the tape, and where in a storage it was written."""
    number: int
    geometry: Geometry
    flags: int


@dataclasses.dataclass
class Memory:
    """What the tape knows about one storage. It is kept alive for the replay, or its address would be another's soon."""
    storage: typing.Any
    parts: list = dataclasses.field(default_factory=list)  # in the order in which they were written; a later one lies over
    read: dict = dataclasses.field(default_factory=dict)  # Geometry -> Part, since the last write

    def wrote(self, part):
        self.parts.append(part)
        self.read = {part.geometry: part}


class Leaf(typing.NamedTuple):
    """A tensor among the arguments of an operator that is kept for its rerun."""
    input: int  # -1: the operator does not read it
    shape: tuple
    dtype: torch.dtype


@dataclasses.dataclass
class Kept:
    """What a rerun in FP64 takes."""
    func: typing.Any = None
    leaves: list = None
    spec: typing.Any = None
    written: tuple = ()  # indices of leaves that are written to
    places: list = None  # of an alias or a select: where each input lies, as a Geometry or as indices of its elements
    to: list = None  # of an alias: Geometry of its output
    left: typing.Any = None  # of a select: indices of its elements
    values: list = None  # of a random operator: what it drew


class Tape(TorchDispatchMode):
    """Tells the tape of one replay. `program` knows modules and phases, and keeps what reruns need."""

    def __init__(self, lib, handle, program):
        super().__init__()
        self.lib, self.handle, self.program = lib, handle, program
        self.memory, self.kept, self.nodes, self.items = {}, [], [], []
        self.heard, self.constants = 0, 0
        self.error = None

    # What is told.

    def check(self, status, err):
        if status != OK:
            self.error = status
            raise RuntimeError(err.message.decode())

    def value(self, tensor, name, flags, module=None):
        data = tensor.detach()
        data = data.resolve_conj().resolve_neg().contiguous()
        told = Value(ctypes.sizeof(Value), flags, module.encode() if module is not None else None, name.encode(),
                     data.data_ptr() if data.numel() else None, data.numel(), DTYPES[data.dtype], 0, min(data.dim(), 8))
        for i, n in enumerate(data.shape[:8]):
            told.shape[i] = n
        return told, data

    def memory_of(self, tensor):
        storage = tensor.untyped_storage()
        return self.memory.setdefault(storage._cdata, Memory(storage))

    def entry(self, tensor, module, name, flags):
        """Something that is there before it was heard of. It lies under all that is known of that storage."""
        memory, err, number = self.memory_of(tensor), Error(), ctypes.c_uint32()
        told, data = self.value(tensor, name, flags, module)
        self.check(self.lib.fb_tape_entry(self.handle, ctypes.byref(told), ctypes.byref(number), ctypes.byref(err)), err)
        memory.parts.insert(0, Part(number.value, Geometry.of(tensor), flags & MASK))
        memory.read.pop(Geometry.of(tensor), None)

    def op(self, name, inputs, outputs, kept, attributes=(), module=None, boundary=None, source=None, node=None):
        """outputs: [(tensor, name, flags)]; node: the autograd node that ran it. Returns their numbers."""
        count, err = len(outputs), Error()
        values = [self.value(*output) for output in outputs]
        told = (Value * max(count, 1))(*[value for value, _ in values])
        reads, ids = (ctypes.c_uint32 * max(len(inputs), 1))(*inputs), (ctypes.c_uint32 * max(count, 1))()
        numbers = (Attribute * max(len(attributes), 1))(*[Attribute(key.encode(), value) for key, value in attributes])
        module = self.program.module() if module is None else module
        op = Op(ctypes.sizeof(Op), 0, name.encode(), module.encode(), source.encode() if source else None,
                self.program.boundary(module) if boundary is None else boundary, 0, len(self.kept), len(inputs), count,
                len(attributes), reads, told, ids, numbers, node.encode() if node else None)
        self.kept.append(kept)
        self.check(self.lib.fb_tape_op_ran(self.handle, ctypes.byref(op), ctypes.byref(err)), err)
        return list(ids[:count])

    # What is read, and what is written.

    def read(self, tensor):
        memory, geometry = self.memory_of(tensor), Geometry.of(tensor)
        if geometry not in memory.read:
            memory.read[geometry] = self.look_up(tensor, memory, geometry)
        return memory.read[geometry]

    def owners(self, memory, geometry):
        """Which part each byte of the storage belongs to; -1: none."""
        size = max(part.room() * part.dtype.itemsize for part in [geometry] + [part.geometry for part in memory.parts])
        owner = torch.full((max(size, 1),), -1)
        for k, part in enumerate(memory.parts):
            part.geometry.on_bytes(owner).fill_(k)
        return owner

    def look_up(self, tensor, memory, geometry):
        if len(memory.parts) == 1 and memory.parts[0].geometry.holds(geometry):
            return self.alias(tensor, geometry, memory.parts, [memory.parts[0].number], [memory.parts[0].geometry])
        owner = self.owners(memory, geometry)
        if not memory.parts or bool((geometry.on_bytes(owner) < 0).any()):
            self.constants += 1
            self.entry(tensor, "", f"constant.{self.constants}", 0)
            owner = self.owners(memory, geometry)
        wanted = torch.zeros_like(owner)
        geometry.on_bytes(wanted).fill_(1)
        parts = [(k, memory.parts[k]) for k in torch.unique(geometry.on_bytes(owner)).tolist()]
        if not parts:
            parts = [(len(memory.parts) - 1, memory.parts[-1])]  # of no elements
        reads, places = [], []
        for k, part in parts:
            mine = (part.geometry.on_bytes(owner) == k) & (part.geometry.on_bytes(wanted) == 1)
            number, place = part.number, part.geometry
            if len(parts) > 1 and not bool(mine.all()):
                number, place = self.select(memory, part, mine.any(-1))
            reads.append(number)
            places.append(place)
        return self.alias(tensor, geometry, [part for _, part in parts], reads, places)

    def alias(self, tensor, geometry, parts, reads, places):
        if len(parts) == 1 and parts[0].geometry == geometry:
            return parts[0]
        mask = MASK if any(part.flags & MASK for part in parts) else 0
        number, = self.op("alias", reads, [(tensor, "alias", mask)], Kept(places=places, to=[geometry]))
        return Part(number, geometry, mask)

    def select(self, memory, part, mine):
        """What is left of a part: something bad in the rest of it is nothing that can be read here."""
        place = part.geometry
        whole = torch.empty(0, dtype=place.dtype).set_(memory.storage, place.offset, place.shape, place.strides)
        left = place.on(torch.arange(place.room()))[mine]
        number, = self.op("select", [part.number], [(whole[mine], "select", part.flags)], Kept(places=[place], to=[], left=left))
        return number, left

    # The dispatcher.

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        written = written_leaves(func, args, kwargs)
        name = func._schema.name.split("::")[-1]
        blind = set(written) if name in OVERWRITES or "out" in kwargs else set()
        inputs, flags, kept, scalars = [], [], [], []
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                kept.append(leaf)
                if isinstance(leaf, float) and not abs(leaf) < float("inf"):
                    scalars += [item for item in self.items if item not in inputs]
                continue
            kept.append(Leaf(-1 if i in blind else len(inputs), tuple(leaf.shape), leaf.dtype))
            if i in blind:
                continue
            place = self.read(leaf)
            inputs.append(place.number)
            flags.append(place.flags)
        inputs += scalars
        number = self.heard
        self.heard += 1
        self.nodes.append(self.program.node())
        result = func(*args, **kwargs)
        self.ran(func, number, leaves, written, inputs, flags, Kept(func, kept, spec, tuple(written)),
                 attributes_of(func, args, kwargs), result)
        return result

    def ran(self, func, number, leaves, written, inputs, flags, kept, attributes, result):
        name = func._schema.name.split("::")[-1]
        made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        targets = [leaves[i] for i in written]
        fresh = [t for t in made if not any(t is target for target in targets)]
        if name == "_local_scalar_dense" and leaves[0].dtype.is_floating_point:
            fresh = [torch.tensor(result, dtype=leaves[0].dtype)]
        fresh = [t for t in fresh if t.untyped_storage()._cdata not in self.memory]  # the others are views
        outputs = targets + fresh
        if not outputs:
            return
        if torch.Tag.nondeterministic_seeded in func.tags:
            kept.values = [t.detach().clone() for t in outputs]
        mask = mask_of(name, leaves, flags)
        named = [(t, name if k == 0 else f"{name}.{k}", mask) for k, t in enumerate(outputs)]
        ids = self.op(str(func), inputs, named, kept, attributes, source=f"#{number}", node=self.nodes[number])
        for of, t in zip(ids, outputs):
            self.memory_of(t).wrote(Part(of, Geometry.of(t), mask))
        if name == "_local_scalar_dense":
            self.items += [of for of, t in zip(ids, outputs) if not bool(torch.isfinite(t))]

    def site(self, name, tensor, module, boundary):
        """A place that a guard watches, under its name. It is the tensor itself."""
        self.op("site", [self.read(tensor).number], [(tensor, name, 0)], Kept(), module=module, boundary=boundary)


def written_leaves(func, args, kwargs):
    """Indices of the leaves that the operator writes to, by its schema: by their place, for x.copy_(x) reads what it writes."""
    writes = {argument.name for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write}
    # The schema of this one says nothing of the statistics that it moves.
    if func._schema.name == "aten::native_batch_norm" and args[5]:
        writes |= {"running_mean", "running_var"}
    found, at = [], 0
    for name, given in list(zip((argument.name for argument in func._schema.arguments), args)) + list(kwargs.items()):
        leaves = pytree.tree_leaves(given)
        found += [at + i for i, leaf in enumerate(leaves) if name in writes and isinstance(leaf, torch.Tensor)]
        at += len(leaves)
    return found


def mask_of(name, leaves, flags):
    """-Inf is meant where it was filled in, and where that was only moved or added to."""
    if name in MAKES_MASKS and any(isinstance(leaf, (int, float)) and leaf == float("-inf") for leaf in leaves):
        return MASK
    return MASK if name in KEEPS_MASKS and any(flags) else 0


def attributes_of(func, args, kwargs):
    found = []
    for i, argument in enumerate(func._schema.arguments):
        value = kwargs.get(argument.name) if argument.name in kwargs else args[i] if i < len(args) else argument.default_value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((argument.name, float(value)))
    return found[:6]


# ---- the same in FP64 ---------------------------------------------------------------------------------------------------------


def wide(dtype):
    return torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype


def doubles(pointer, count):
    if not count:
        return torch.empty(0, dtype=torch.float64)
    return torch.frombuffer((ctypes.c_double * count).from_address(ctypes.addressof(pointer.contents)), dtype=torch.float64)


def again(kept, inputs):
    """The outputs in FP64, or None where there is no such form."""
    if kept.values is not None:
        return [t.to(torch.float64) for t in kept.values]
    if kept.places is not None:
        return moved(kept, inputs)
    if kept.func is None:
        return [inputs[0].clone()]
    if "empty" in kept.func._schema.name:
        return None  # there is nothing to compute
    leaves = []
    for leaf in kept.leaves:
        if isinstance(leaf, Leaf):
            given = torch.zeros(leaf.shape, dtype=torch.float64) if leaf.input < 0 else inputs[leaf.input].reshape(leaf.shape)
            leaf = given.to(wide(leaf.dtype)).clone()
        elif isinstance(leaf, torch.dtype):
            leaf = wide(leaf)
        leaves.append(leaf)
    if kept.func._schema.name in ("aten::_softmax", "aten::_log_softmax"):
        leaves[2] = False  # no half_to_float: it is FP64 already
    args, kwargs = pytree.tree_unflatten(leaves, kept.spec)
    result = kept.func(*args, **kwargs)
    targets = [leaves[i] for i in kept.written]
    if not isinstance(result, (torch.Tensor, tuple, list)):
        return [torch.tensor(result, dtype=torch.float64)] if isinstance(result, float) else targets
    return targets + [t for t in pytree.tree_leaves(result)
                      if isinstance(t, torch.Tensor) and not any(t is target for target in targets)]


def moved(kept, inputs):
    """An alias or a select: what lies there, looked at from where the output is."""
    of = [place for place in kept.places + kept.to if isinstance(place, Geometry)]
    if len({place.dtype for place in of}) > 1:
        return None
    room = [place.room() if isinstance(place, Geometry) else int(place[-1]) + 1 for place in kept.places + kept.to]
    base = torch.zeros(max(room + [1]), dtype=torch.float64)
    for place, values in zip(kept.places, inputs):
        if not isinstance(place, Geometry):
            base[place] = values
        elif values.numel():
            place.on(base).copy_(values.reshape(place.shape))
    return [base[kept.left]] if kept.left is not None else [to.on(base) for to in kept.to]
