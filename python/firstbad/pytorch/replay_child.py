"""This process was started by `firstbad replay` or `firstbad bisect`: the bad update is run again, and no step is trained.

The user's own command runs, with its own model, until the root that the bundle names is called for the first time. Then parameters,
buffers, random state and batch come from the bundle, the update is replayed and located, the result goes where it was asked for,
and the process ends: with 0 when locate.json is there, with 1 and a sentence when it could not be done.
"""
from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _native
from ..errors import LibraryError
from . import encode, locate
from .bundle import Bundle
from .locator import Finding, Group, Located, Locator
from .program import Program, RootCall, plain_module
from .rehearse import Rehearsal
from .replay import Names

_asked: Optional[Tuple[abi.ReplayWanted, Bundle]] = None
_looked = False


def at_root(root: Any) -> None:
    """A root is called. Returns where it is not the one that the bundle is about, else the process ends here."""
    global _asked, _looked
    if not _looked:
        _looked = True
        _asked = _open()
    if _asked is None:
        return
    want, bundle = _asked
    mine = _role(bundle)
    text = bundle.text(mine, "program")
    if not text:
        _end(1, f"the bundle holds no program: {bundle.text(mine, 'not_replayable') or 'it was written by another trainer'}")
    roots = [(str(r["name"]), str(r["shape"])) for r in json.loads(text)["roots"]]
    if encode.shape_of(plain_module(root)) != roots[0][1]:
        return  # another model (a teacher, a warm-up), or not built as it was then; the hook at exit tells
    try:
        code = _replay(want, bundle, mine, text, _find(roots, plain_module(root)))
    except Exception as why:
        _end(1, f"the update of the bundle could not be replayed: {type(why).__name__}: {why}")
    _end(code)


def _open() -> Optional[Tuple[abi.ReplayWanted, Bundle]]:
    want = abi.ReplayWanted.new()
    err = abi.Error()
    status = _native.lib().fb_replay_asked(ctypes.byref(want), ctypes.byref(err))
    if status == abi.E_NOTFOUND:
        return None
    try:
        _native.raise_for(status, err)
        bundle = Bundle(_native.text(want.bundle))
    except LibraryError as why:
        _end(1, str(why))
    import atexit
    atexit.register(_never_came)
    return want, bundle


def _never_came() -> None:
    """The program ended, and the model of the bundle was never called."""
    sys.stderr.write("firstbad: the model of the bundle was never called in this process: it is built otherwise than it was\n")
    sys.stderr.flush()
    os._exit(1)


def _end(code: int, sentence: str = "") -> Any:
    if sentence:
        sys.stderr.write(f"firstbad: {sentence}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _processes() -> Tuple[int, int]:
    """(rank, how many) of the processes that take part."""
    import torch.distributed as dist
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _role(bundle: Bundle) -> int:
    """The rank that this process plays. With fewer processes than ranks it is that of the finding."""
    rank, world = _processes()
    return rank if world == bundle.world else bundle.integer(0, "finding.rank")


def _find(roots: Sequence[Tuple[str, str]], first: torch.nn.Module) -> List[Tuple[str, torch.nn.Module]]:
    """The living modules of the bundle: the first is the one that was called, others are looked for by what they are built like."""
    found: List[Tuple[str, torch.nn.Module]] = [(roots[0][0], first)]
    modules = [thing for thing in gc.get_objects() if isinstance(thing, torch.nn.Module)] if len(roots) > 1 else []
    for name, shape in roots[1:]:
        taken = {id(module) for _, module in found}
        match = next((m for m in modules if id(m) not in taken and type(m).__name__ == shape.split("-")[0]
                      and encode.shape_of(m) == shape), None)
        if match is None:
            raise encode.NotPlain(f"the model {name or shape} of the bundle is not in this process")
        found.append((name, match))
    return found


def _replay(want: abi.ReplayWanted, bundle: Bundle, mine: int, text: str, roots: List[Tuple[str, torch.nn.Module]]) -> int:
    _load_state(bundle, mine, roots)
    given = json.loads(text)
    batch = {f"{n}.{e['name'] or 'tensor'}": bundle.tensor(mine, abi.BUNDLE_BATCH, f"{n}.{e['name'] or 'tensor'}")
             for n, e in enumerate(given["externals"]) if e["owner"] is None}
    rng: Dict[str, torch.Tensor] = {}
    for index, step in enumerate(given["steps"]):
        for name in [f"{index}.cpu"] + [f"{index}.device{k}" for k in range(step.get("rng", {}).get("devices", 0)
                                                                             if isinstance(step.get("rng"), dict) else 0)]:
            try:
                rng[name] = bundle.tensor(mine, abi.BUNDLE_RNG, name)
            except LibraryError as why:
                if why.code != abi.E_NOTFOUND:
                    raise
    device = next((p.device for p in roots[0][1].parameters()), torch.device("cpu"))
    program = encode.read(text, roots, {name: tensor.to(device) for name, tensor in batch.items()}, rng)
    _modes(program)
    return _locate(want, bundle, mine, program)


def _load_state(bundle: Bundle, mine: int, roots: Sequence[Tuple[str, torch.nn.Module]]) -> None:
    seen = set()
    with torch.no_grad():
        for index, (_, root) in enumerate(roots):
            for name, tensor in list(root.named_parameters()) + list(root.named_buffers()):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    tensor.copy_(bundle.tensor(mine, abi.BUNDLE_STATE, f"{index}/{name}").to(tensor.device))


def _modes(program: Program) -> None:
    """train() and eval() of every module as they were."""
    for step in program.steps:
        if not isinstance(step, RootCall) or not step.training:
            continue
        modules = list(plain_module(step.root).modules())
        if len(step.training) == len(modules):
            for module, flag in zip(modules, step.training):
                module.training = bool(flag)


def _group(bundle: Bundle, mine: int) -> Group:
    _, world = _processes()
    if world == 1 or world != bundle.world:
        return Group(mine, bundle.world)
    import torch.distributed as dist
    group = dist.new_group(backend="gloo")

    def max_ints(values: Sequence[int]) -> List[int]:
        words = torch.tensor(list(values), dtype=torch.int64)
        dist.all_reduce(words, op=dist.ReduceOp.MAX, group=group)
        return [int(value) for value in words]
    return Group(mine, world, max_ints, group)


def _locate(want: abi.ReplayWanted, bundle: Bundle, mine: int, program: Program) -> int:
    ranks = _group(bundle, mine)
    finding = Finding(bundle.integer(mine, "finding.rank"), bundle.integer(mine, "finding.boundary"),
                      bundle.integer(mine, "finding.micro_step"), bundle.integer(mine, "finding.kind"),
                      bundle.text(mine, "finding.module"), bundle.text(mine, "finding.tensor"),
                      bool(bundle.integer(mine, "finding.injected")))
    called = json.loads(bundle.text(mine, "names") or "{}")
    known = {id(leaf): tuple(called[f"{i}/{path}"]) for i, (_, root) in enumerate(program.roots)
             for path, leaf in root.named_parameters() if f"{i}/{path}" in called}
    names: Names = locate.names_of(program, known)
    told = [torch.tensor(float.fromhex(text), dtype=torch.float64) for text in bundle.text(mine, "losses").split()]
    one = Rehearsal(program, names, ranks, finding, told)
    differences = list(program.differences)
    parts = int(want.parts) or abi.LOCATE_ALL
    if ranks.max_ints is None and ranks.world > 1:
        differences.append("one process played the rank of the finding alone")
        parts &= ~abi.LOCATE_OTHER_RANK
    one.rehearse()
    locator = Locator(
        one.again, program, ranks, one.finding.micro, float(os.environ.get("FIRSTBAD_LOCATE_SECONDS") or 300), one.fill
    )
    out = _native.text(want.out)
    samples = None
    try:
        samples = [int(v) for v in bundle.tensor(mine, abi.BUNDLE_BATCH, "sample_ids")]
    except LibraryError as why:
        if why.code != abi.E_NOTFOUND:
            raise
    located: Located = locator.run(
        one.finding, parts=parts, strategy=int(want.strategy), probes_max=int(want.probes_max), times=int(want.times),
        folder=out or None, precision=bundle.text(mine, "precision") or "fp32", step=bundle.step, sample_ids=samples,
        differences=list(dict.fromkeys(differences + one.differences)), run_id=bundle.run_id, case_id=bundle.case_id)
    sys.stderr.write(f"firstbad: step {bundle.step}, replayed from its bundle: {located.sentence}\n")
    if located.note:
        sys.stderr.write(f"firstbad: {located.note}\n")
    return 0
