"""What the library is told when a run is opened, when an update begins, and when it ends."""
from __future__ import annotations

import ctypes
import hashlib
import math
import os
import sys
from typing import Any, List, Optional

import torch

from .. import _abi as abi
from .. import _native
from .registry import optimizers as known_optimizers
from .update import Update

_ON_BAD = {"skip": abi.ON_BAD_SKIP, "halt": abi.ON_BAD_HALT, "observe": abi.ON_BAD_OBSERVE}


def open_run(session: Any) -> None:
    """fb_run_open, by what the ranks agreed on. Fills session.run, ranks, rank, world, folder. Raises LibraryError."""
    from . import ranks

    session.ranks = ranks.join(session, session.roots)
    session.rank, session.world = session.ranks.rank, session.ranks.world
    given = session.settings
    tensors = sum(1 for root in session.roots if isinstance(root, torch.nn.Module) for _ in root.parameters())
    tensors += sum(len(group["params"]) for optimizer in known_optimizers.alive() for group in optimizer.param_groups)
    config = abi.RunConfig.new(
        rank=session.rank, world=session.world, dp_rank=getattr(session.ranks, "dp_rank", -1),
        on_bad=_ON_BAD[given.get("on_bad") or "skip"], max_skips=int(given.get("max_skips") or 3),
        agreement=session.ranks.agreement, threads=0, replicated=int(session.ranks.replicated), sites_max=max(65536, 8 * tensors))
    if given.get("run_dir"):
        config.dir = os.fsencode(given["run_dir"])
    run_id = session.ranks.run_id or given.get("run_id") or ""
    if run_id:
        config.run_id = run_id.encode()
    lib = _native.lib()
    with session.ranks.environment():
        if session.world == 1 and not session.ranks.attempt:
            _native.call(lib.fb_run_open_alone, ctypes.byref(session.run), ctypes.byref(config))
        else:
            config.attempt = max(1, session.ranks.attempt)
            _native.call(lib.fb_run_open, ctypes.byref(session.run), ctypes.byref(config))
    session.folder = _native.text(lib.fb_run_folder(session.run))


def observes(session: Any) -> bool:
    """Is a bad update to be recorded and let through? The environment wins, as in the library."""
    return (os.environ.get("FIRSTBAD_ON_BAD") or getattr(session, "settings", {}).get("on_bad") or "skip") == "observe"


def first_number() -> int:
    """After a resume the optimizers' own counters say how many updates there were."""
    most = 0
    for optimizer in known_optimizers.alive():
        for kept in list(optimizer.state.values()):
            step = kept.get("step") if isinstance(kept, dict) else None
            if isinstance(step, torch.Tensor) and step.numel() == 1 and step.device.type == "cpu":
                step = step.item()
            if isinstance(step, (int, float)) and step == step:
                most = max(most, int(step))
                break
    return most


def note(**facts: Any) -> None:
    """What `firstbad run` is to know of this process; nothing where it was not started by it."""
    hook = sys.modules.get("firstbad.bootstrap.hook")
    if hook is not None:
        hook.note(**facts)


def refresh_names(session: Any) -> None:
    """Names and sites for what is new since the last update: roots, optimizers, parameters. Between steps."""
    optimizers = known_optimizers.alive()
    owned = [parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]]
    # By their ids, which stay theirs since a place holds its tensor: another one may have taken the place of one in its group.
    known = (len(session.roots), *map(id, optimizers), *map(id, owned))
    if known == session.known:
        return
    session.known = known
    if session.updates:
        _let_go(session, owned)
    session.names.cover(session.roots, owned)
    session.names.add_sites(session.run, owned)
    session.gates.forget_tables()


def _let_go(session: Any, owned: List[Any]) -> None:
    """Roots that neither run in this update nor hold what an optimizer owns are forgotten."""
    wanted = {id(parameter) for parameter in owned}
    running = session.update.roots if session.update is not None else []
    session.roots = [root for root in session.roots if id(root) in running or not isinstance(root, torch.nn.Module)
                     or any(id(parameter) in wanted for parameter in root.parameters())]
    session.names.let_go(session.roots, owned)


def step_of(session: Any, update: Update) -> abi.Step:
    """What is known of an update as it begins."""
    step = abi.Step.new(step=update.number, micro_steps=0, known=abi.KNOWN_RNG_HASH, rng_state_hash=rng_hash())
    if update.fingerprint is not None:
        step.known |= abi.KNOWN_BATCH_FINGERPRINT
        step.batch_fingerprint = update.fingerprint & (2**64 - 1)
    if session.checkpoint_parent is not None:
        step.known |= abi.KNOWN_CHECKPOINT_PARENT
        step.checkpoint_parent = session.checkpoint_parent
    rate = learning_rate(known_optimizers.alive())
    if rate is not None and (math.isfinite(rate) or not session.optim.tries_first()):
        step.known |= abi.KNOWN_LEARNING_RATE
        step.learning_rate = rate
    scale = session.scaling.scale_now()
    if scale is not None:
        step.known |= abi.KNOWN_LOSS_SCALE
        step.loss_scale = scale
    known = [int(sample) for sample in update.samples or () if sample is not None]
    if known:
        step.sample_ids, step.sample_count = (ctypes.c_int64 * len(known))(*known), len(known)
    return step


def end_step(session: Any, update: Update) -> None:
    """fb_step_end, or fb_step_abandon for one that was neither applied nor withheld."""
    lib = _native.lib()
    if update.verdict is not None and (update.skipped or update.applied):
        if update.applied:
            session.gates.check_update()
        _native.call(lib.fb_step_end, session.run, ctypes.byref(result_of(update)))
    else:
        if update.verdict is not None and not update.scaler_updated:
            session.coverage.note("gradients were looked at, and no optimizer of torch stepped: what became of them is not gated")
        _native.call(lib.fb_step_abandon, session.run)
    update.open = False


def give_up(session: Any, update: Update) -> None:
    """The step that is open ends without an update. Where ranks vote, one alone may have begun it, to look at something, and the
    others are not to hear of it; what it found was no update's."""
    lib = _native.lib()
    alone = session.world > 1 and update.verdict is None
    _native.call(lib.fb_step_forget if alone else lib.fb_step_abandon, session.run)
    update.open = False


def result_of(update: Update) -> abi.StepResult:
    """What is known of an update as it ends. The loss is that of its last backward."""
    result = abi.StepResult.new()
    if update.losses and update.losses[-1].tensor.device.type == "cpu":
        result.known |= abi.KNOWN_LOSS
        loss = update.losses[-1].tensor.item()
        result.loss = float(loss.real if isinstance(loss, complex) else loss)
    if update.grad_norm is not None:
        result.known |= abi.KNOWN_GRAD_NORM
        result.grad_norm = update.grad_norm
    return result


def learning_rate(optimizers: List[Any]) -> Optional[float]:
    """That of the first group that has one in host memory."""
    for optimizer in optimizers:
        rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
        if isinstance(rate, torch.Tensor):
            rate = rate.item() if rate.device.type == "cpu" and rate.numel() == 1 else None
        if isinstance(rate, (int, float)):
            return float(rate)
    return None


def rng_hash() -> int:
    """64 bits of torch's stream. Cost: 5 us."""
    stream = torch.get_rng_state()
    held = (ctypes.c_char * stream.numel()).from_address(stream.data_ptr())
    return int.from_bytes(hashlib.blake2b(held, digest_size=8).digest(), "little")
