"""Parameters and gradients that are spread over ranks: which ranks move together, what of a tensor lies here, and what it is
called.

    DDP, replicate                every rank has all of it; the gradient is the average over the ranks
    FSDP (flat parameters)        every rank has a run of the flat buffer in which several parameters lie one after another
    fully_shard, tensor parallel  every rank has a block: a DTensor

torch.distributed is looked at only where the program has imported it.
"""
from __future__ import annotations

import gc
import sys
import weakref
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

_PARTS_MAX = 65_536  # modules looked at for the question of who moves together


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


# ---- who moves together ----------------------------------------------------------------------------------------------------------


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
    return [thing for thing in gc.get_objects()
            if type(thing) in kinds or "FSDPModule" in (base.__name__ for base in type(thing).__bases__)]


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
        lines.append(f"{', '.join(sorted(kinds - {'ddp'}))}: parameters are spread over ranks, so an update is not replayed, and "
                     "no operator named")
    if "fsdp" in kinds:
        lines.append("fsdp: gradients are seen after they were reduced, on the rank that keeps that part of them; which rank "
                     "brought a bad number is told where its loss shows it")
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


# ---- what lies here, and its name ------------------------------------------------------------------------------------------------


def offsets(parameter: torch.Tensor) -> Optional[Tuple[int, ...]]:
    """Where the block of a DTensor begins in the whole, by dimension; None when this version of torch cannot say."""
    from torch.distributed.tensor import _utils  # of a DTensor: its package is there

    try:
        spread: Any = parameter
        shape, where = _utils.compute_local_shape_and_global_offset(spread.shape, spread.device_mesh, spread.placements)
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


_groups: "weakref.WeakKeyDictionary[torch.nn.Module, List[weakref.ref[Any]]]" = weakref.WeakKeyDictionary()
_labels: Dict[int, Tuple["weakref.ref[torch.Tensor]", str]] = {}


def learn(root: torch.nn.Module) -> None:
    """Before parameters of a root are named: which of them are parts of something. Cost: a walk over its modules."""
    for module in root.modules():
        if is_fully_shard(module):
            for shard in shards(module):
                known = _groups.setdefault(shard._module_info.module, [])
                if not any(one() is shard for one in known):
                    known.append(weakref.ref(shard))
        elif is_fsdp(module):
            for parameter, text in _flat_runs(module):
                _labels[id(parameter)] = (weakref.ref(parameter), text)


def shards(module: Any) -> List[Any]:
    """What fully_shard keeps for each parameter that this module gathers: sharded_param, unsharded_param, _module_info. Private
    to torch: where it is not found, parameters are named by their place in the optimizer, and gradients are seen after they were
    reduced only."""
    group = getattr(module._get_fsdp_state(), "_fsdp_param_group", None) if hasattr(module, "_get_fsdp_state") else None
    kept = getattr(group, "fsdp_params", ()) or ()
    return [one for one in kept if hasattr(one, "_module_info") and hasattr(one, "sharded_param")]


def behind(module: Any) -> List[Tuple[str, torch.Tensor]]:
    """(name, parameter) that optimizers own and that fully_shard has taken out of a module while the whole ones are in it."""
    alive = [one() for one in _groups.get(module, ())] if module in _groups else []
    return [(shard._module_info.param_name, shard.sharded_param) for shard in alive if shard is not None]


def label(parameter: torch.Tensor) -> str:
    """Which part of it lies here, behind its name: "[2:4]", "[flat 27:30]"; "" for a whole one."""
    if is_dtensor(parameter):
        return _block_label(parameter)
    known = _labels.get(id(parameter))
    return known[1] if known is not None and known[0]() is parameter else ""


def _flat_runs(module: Any) -> List[Tuple[torch.Tensor, str]]:
    """Parameters that FSDP shows in place of a module's own, and which part of each lies here.

    With use_orig_params they are views into the flat shard with the shape (elements,), or empty where nothing of them lies here.
    Otherwise there is one flat parameter for all of the module.
    """
    flat = getattr(getattr(module, "_handle", None), "flat_param", None)
    if flat is None:
        return []
    shown = getattr(flat, "_params", None)
    if not shown:
        return [(flat, f"[shard {module.process_group.rank()} of {module.process_group.size()}]")]
    out: List[Tuple[torch.Tensor, str]] = []
    for parameter, shape, info in zip(shown, flat._shapes, flat._shard_param_infos):
        if info.in_shard and info.numel_in_shard != shape.numel():
            begin = info.intra_param_start_idx
            out.append((parameter, f"[flat {begin}:{begin + info.numel_in_shard}]"))
    return out
