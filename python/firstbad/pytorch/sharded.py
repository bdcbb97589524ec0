"""Parameters and gradients that are spread over ranks: which ranks move together, what of a tensor lies here, and what it is called.

    DDP, replicate                every rank has all of it; the gradient is the average over the ranks
    FSDP (flat parameters)        every rank has a run of the flat buffer in which several parameters lie one after another
    fully_shard, tensor parallel  every rank has a block: a DTensor

torch.distributed is looked at only where the program has imported it.
"""
from __future__ import annotations

import gc
import sys
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

_PARTS_MAX = 65_536  # modules looked at for the question of who moves together


class Piece(NamedTuple):
    """A stretch of a tensor that lies here, as something that has a name.

    name    of the parameter as the model has it: "0.weight". label: which part of it: "[2:4]", "[:, 0:8]", "[flat 27:30]"; "" : all
    start, elements    of the local tensor, flat       shape    of the piece; () for a run of a flat buffer
    """

    name: str
    label: str
    start: int
    elements: int
    shape: Tuple[int, ...]


class Coupling(NamedTuple):
    """Who must take every update together with this rank, because the program itself waits for them in each.

    kinds       "ddp", "fsdp", "fully_shard", "tensor parallel"
    groups      tuples of ranks, one for each process group or mesh that carries gradients or activations
    dp_rank     -1: unknown       replicas   True: DDP keeps all parameters of these modules equal on all ranks of the default group
    lines       what is not covered, one sentence each
    """

    kinds: FrozenSet[str]
    groups: Tuple[Tuple[int, ...], ...]
    dp_rank: int
    replicas: bool
    lines: Tuple[str, ...]


# ---- kinds of tensors and modules ------------------------------------------------------------------------------------------------


def _loaded(module: str, name: str) -> Any:
    """A class of a module that the program imported, or None. Nothing is imported here."""
    return getattr(sys.modules.get(module), name, None)


def is_dtensor(tensor: Any) -> bool:
    kind = _loaded("torch.distributed.tensor", "DTensor") or _loaded("torch.distributed._tensor", "DTensor")
    return kind is not None and isinstance(tensor, kind)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What of a tensor lies in this process: itself, or the block of a DTensor. Waits for a block that is still on its way."""
    if not is_dtensor(tensor):
        return tensor
    block: torch.Tensor = tensor._local_tensor  # type: ignore[attr-defined]
    waiting = getattr(block, "wait", None)
    return waiting() if callable(waiting) else block  # type: ignore[no-any-return]


def is_ddp(module: Any) -> bool:
    kind = _loaded("torch.nn.parallel.distributed", "DistributedDataParallel")
    return kind is not None and isinstance(module, kind)


def is_fsdp(module: Any) -> bool:
    """FSDP with flat parameters."""
    kind = _loaded("torch.distributed.fsdp", "FullyShardedDataParallel")
    return kind is not None and isinstance(module, kind)


def is_fully_shard(module: Any) -> bool:
    """fully_shard puts a class of its own before the module's; where that lives has moved between versions."""
    return any(kind.__name__ == "FSDPModule" and kind.__module__.startswith("torch.distributed") for kind in type(module).__mro__)


# ---- who moves together ------------------------------------------------------------------------------------------------------------


def coupling(roots: Sequence[torch.nn.Module], world: int) -> Coupling:
    """From the modules that train; where none of them says anything, from all modules of the process that are DDP or FSDP.

    Cost: a walk over the modules; at most one over the objects of the process, some 50 ms.
    """
    found = _coupling(roots, world)
    if not found.groups:
        found = _coupling(_wrappers(), world)
    return found


def _wrappers() -> List[torch.nn.Module]:
    if not any(_loaded(where, name) for where, name in (("torch.nn.parallel.distributed", "DistributedDataParallel"),
                                                        ("torch.distributed.fsdp", "FullyShardedDataParallel"))):
        return []
    # type(), not isinstance: asking a lazy object for its class may import things.
    kinds = {kind for kind in (_loaded("torch.nn.parallel.distributed", "DistributedDataParallel"),
                               _loaded("torch.distributed.fsdp", "FullyShardedDataParallel")) if kind is not None}
    return [thing for thing in gc.get_objects() if type(thing) in kinds or "FSDPModule" in (b.__name__ for b in type(thing).__bases__)]


def _coupling(roots: Iterable[torch.nn.Module], world: int) -> Coupling:
    kinds: Set[str] = set()
    groups: Dict[Tuple[int, ...], None] = {}
    lines: List[str] = []
    dp_rank = -1
    replicas = True
    seen: Set[int] = set()
    modules = 0
    for root in roots:
        for module in root.modules():
            modules += 1
            if id(module) in seen or modules > _PARTS_MAX:
                continue
            seen.add(id(module))
            if is_ddp(module):
                ranks = _ranks_of(module.process_group)
                kinds.add("ddp")
                groups[ranks] = None
                dp_rank = module.process_group.rank()
                replicas = replicas and len(ranks) == world and not module.parameters_to_ignore and not _local_sgd(module)
            elif is_fsdp(module):
                kinds.add("fsdp")
                groups[_ranks_of(module.process_group)] = None
                dp_rank = module.process_group.rank()
                between = getattr(module, "_inter_node_pg", None)
                if between is not None:
                    groups[_ranks_of(between)] = None
            elif is_fully_shard(module):
                kinds.add("fully_shard")
            for parameter in module.parameters(recurse=False):
                if is_dtensor(parameter):
                    groups[tuple(int(r) for r in _root_mesh(parameter.device_mesh).mesh.flatten().tolist())] = None
                    if "fully_shard" not in kinds:
                        kinds.add("tensor parallel")
    if "torch.distributed.pipelining" in sys.modules:
        lines.append("pipeline stages: each is replayed alone, and what comes from another stage is taken as it is")
    if kinds - {"ddp"}:
        lines.append(f"{', '.join(sorted(kinds - {'ddp'}))}: a gradient is seen after it was reduced, on the rank that keeps that part of "
                     "it; the rank that brought a bad number is told from its loss and by the replay")
    return Coupling(frozenset(kinds), tuple(groups), dp_rank, replicas and kinds == {"ddp"}, tuple(lines))


def _ranks_of(group: Any) -> Tuple[int, ...]:
    return tuple(torch.distributed.get_process_group_ranks(group))


def _root_mesh(mesh: Any) -> Any:
    """The mesh that this one was cut out of: its ranks move together with ours, dimension by dimension."""
    for ask in ("_get_root_mesh",):
        try:
            return getattr(mesh, ask)() or mesh
        except Exception:
            break  # another version: the mesh itself is the cautious answer, fewer ranks are then known to move together
    resources = getattr(sys.modules.get("torch.distributed.device_mesh"), "_mesh_resources", None)
    asked = getattr(resources, "get_root_mesh", None)
    return (asked(mesh) or mesh) if callable(asked) else mesh


def _local_sgd(module: Any) -> bool:
    """Hooks after which replicas are not equal after every update."""
    return any("post_localSGD" in getattr(hook, "__name__", "") for hook, _ in getattr(module, "_comm_hooks", ()))


def connected(groups: Iterable[Sequence[int]], world: int) -> bool:
    """True when the groups join all ranks 0 .. world - 1, directly or by way of others."""
    of = list(range(world))

    def find(rank: int) -> int:
        while of[rank] != rank:
            of[rank] = of[of[rank]]
            rank = of[rank]
        return rank

    for ranks in groups:
        for rank in ranks:
            if 0 <= rank < world and 0 <= ranks[0] < world:
                of[find(rank)] = find(ranks[0])
    return len({find(rank) for rank in range(world)}) == 1


# ---- what lies here, and its name --------------------------------------------------------------------------------------------------


def pieces(parameter: torch.Tensor, name: str) -> List[Piece]:
    """The parts of a parameter (and of its gradient, and of moments of that shape) that lie in this process; [] when none does.

    name  as named_parameters() has it, wrappers left out. A parameter that is whole gives one piece without a label. A flat
    parameter gives one piece for each of those that it was made of.
    """
    if is_dtensor(parameter):
        block = local(parameter)
        if block.numel() == 0:
            return []
        return [Piece(name, _block_label(parameter), 0, block.numel(), tuple(block.shape))]
    flat = _flat_pieces(parameter)
    if flat is not None:
        prefix = name.rpartition(".")[0]
        return [Piece(f"{prefix}.{n}" if prefix else n, label, start, count, shape) for n, label, start, count, shape in flat]
    return [Piece(name, "", 0, parameter.numel(), tuple(parameter.shape))]


def offsets(parameter: torch.Tensor) -> Optional[Tuple[int, ...]]:
    """Where the block of a DTensor begins in the whole, by dimension; None when this version of torch cannot say."""
    from torch.distributed.tensor import _utils  # of a DTensor: its package is there

    try:
        shape, where = _utils.compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh,  # type: ignore[attr-defined]
                                                                    parameter.placements)  # type: ignore[attr-defined]
    except Exception:
        return None  # a private function: the label says less then
    return tuple(where) if tuple(shape) == tuple(local(parameter).shape) else None


def _block_label(parameter: torch.Tensor) -> str:
    """"[2:4]" of a parameter of 4 rows; "" of one that is whole here."""
    block = tuple(local(parameter).shape)
    if block == tuple(parameter.shape):
        return ""
    where = offsets(parameter)
    if where is None:
        return f"[block {tuple(parameter.device_mesh.get_coordinate() or ())}]"  # type: ignore[attr-defined]
    cuts = [f"{begin}:{begin + size}" if size != whole else ":" for begin, size, whole in zip(where, block, parameter.shape)]
    while cuts[-1] == ":":
        cuts.pop()
    return f"[{', '.join(cuts)}]"


def whole_index(parameter: torch.Tensor, flat: int) -> Optional[Tuple[int, ...]]:
    """Element `flat` of the block that lies here, as an index of the whole parameter; None when it is not known."""
    where: Optional[Tuple[int, ...]] = (0,) * parameter.dim()
    if is_dtensor(parameter):
        where = offsets(parameter)
    if where is None:
        return None
    out: List[int] = []
    for size, begin in zip(reversed(local(parameter).shape), reversed(where)):
        out.append(flat % size + begin)
        flat //= size
    return tuple(reversed(out))


def _flat_pieces(parameter: Any) -> Optional[List[Tuple[str, str, int, int, Tuple[int, ...]]]]:
    """Of a FlatParameter: (name, label, start, count, shape) of what lies in this rank's shard; None for any other tensor."""
    infos = getattr(parameter, "_shard_param_infos", None)
    names = getattr(parameter, "_fqns", None)
    shapes = getattr(parameter, "_shapes", None)
    if infos is None or names is None or shapes is None:
        return None
    out = []
    for name, shape, info in zip(names, shapes, infos):
        if not info.in_shard or not info.numel_in_shard:
            continue
        whole = info.numel_in_shard == shape.numel()
        begin = info.intra_param_start_idx
        label = "" if whole else f"[flat {begin}:{begin + info.numel_in_shard}]"
        out.append((name, label, info.offset_in_shard, info.numel_in_shard, tuple(shape) if whole else ()))
    return out


def flat_runs(root: torch.nn.Module) -> Dict[int, str]:
    """id of a parameter that FSDP with use_orig_params shows -> the label of the part of it that lies here.

    These parameters are views into the flat shard with the shape (elements,), or empty where nothing of them lies here.
    """
    out: Dict[int, str] = {}
    for module in root.modules():
        handle = getattr(module, "_handle", None) if is_fsdp(module) else None
        flat = getattr(handle, "flat_param", None)
        shown = getattr(flat, "_params", None)
        if flat is None or not shown:
            continue
        for parameter, shape, info in zip(shown, flat._shapes, flat._shard_param_infos):
            if info.in_shard and info.numel_in_shard != shape.numel():
                begin = info.intra_param_start_idx
                out[id(parameter)] = f"[flat {begin}:{begin + info.numel_in_shard}]"
    return out
