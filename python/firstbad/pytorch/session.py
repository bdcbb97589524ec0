"""The life of a guarded training process: when an update begins and ends, and what the parts are told of it.

One session a process, opened by the first training forward (or backward, or optimizer step) and not before: the process of a launcher,
a worker of a DataLoader, and one that only evaluates open nothing. Everything here runs on the thread that trains.

    root_enter, root_exit          a root module runs                       (hooks.py)
    backward_enter, backward_exit  torch.autograd.backward                  (hooks.py)
    gate                           all gradients are there                  (gate.py)
    before_step, after_step        an optimizer steps                       (optim.py)
    unscale, step, update          a GradScaler                             (scaler.py)
    between                        may a checkpoint be written now?         (saves.py)
"""
from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import sys
import threading
import weakref
from typing import Any, Dict, List, Optional, Set, Tuple

import torch

from .. import _abi as abi
from .. import _native
from ..errors import Halted, LibraryError
from . import patch, say, state, untouched, views
from .calls import Call
from .coverage import Coverage
from .gate import Gate
from .names import Names, clean, unwrapped
from .optim import Optimizers
from .registry import optimizers as known_optimizers, scalers as known_scalers
from .scaler import Scalers
from .update import Loss, Update

LOSS_ELEMENTS_MAX = 1
ROOT_CALLS_MAX = 256  # forwards without a backward that one update remembers

_current: Optional["Session"] = None
_closed_pid: Optional[int] = None  # a forked child of a process that had a session


def current() -> Optional["Session"]:
    """The session of this process, None where nothing has trained yet."""
    return _current


def obtain() -> Optional["Session"]:
    """The session of this process, opened where this is the first call. None where this process is not to be guarded."""
    global _current
    if _current is not None:
        return _current if _current.alive() else None
    if not patch.usable("session") or _closed_pid is not None or _in_worker():
        return None
    _current = Session()
    _current.open()
    return _current


def close() -> None:
    """End what is open, and forget the session. The next training forward opens another."""
    global _current
    session, _current = _current, None
    if session is not None:
        session.close()
        _look_for_roots(0)


def _look_for_roots(until: int) -> None:
    """Module calls are looked at again."""
    hooks = sys.modules.get(f"{__package__}.hooks")
    if hooks is not None and hooks.installed():
        hooks.search(until)


def _in_worker() -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _after_fork() -> None:
    """In the child: the files of the session are the parent's."""
    global _current, _closed_pid
    if _current is not None:
        _closed_pid = os.getpid()
        _current.dead = True
        _current = None


os.register_at_fork(after_in_child=_after_fork)


class Session:
    """See the head of this file. `settings` are what attach() was given; the environment of `firstbad run` wins in the library."""

    settings: Dict[str, Any] = {}

    def __init__(self) -> None:
        self.run: Any = ctypes.c_void_p()
        self.rank, self.world = 0, 1
        self.ranks: Any = None
        self.roots: List[Any] = []  # in the order of their first call
        self.names = Names()
        self.buffers = state.Buffers()
        self.owned = state.Owned()
        self.coverage = Coverage()
        self.gates = Gate(self)
        self.optim = Optimizers(self)
        self.scaling = Scalers(self)
        self.recorder: Any = None
        self.inputs: Any = None
        self.update: Optional[Update] = None
        self.last: Optional[Update] = None  # the one that ended last
        self.number = 0
        self.first_wanted: Optional[int] = None  # by the program
        self.first_step = 0
        self.resumed = False
        self.updates = 0  # that ended, withheld ones included
        self.skips = 0
        self.checkpoint_parent: Optional[int] = None
        self.halted: Optional[Halted] = None
        self.dead = False
        self.thread = threading.get_ident()
        self.inside: Optional[Any] = None  # the root that runs now
        self.in_backward = 0
        self._known: Tuple[int, ...] = ()
        self.loss_site = 0
        self.folder = ""

    # ---- open and close --------------------------------------------------------------------------------------------------------------

    def alive(self) -> bool:
        return not self.dead

    @property
    def scalers(self) -> List[Any]:
        """GradScalers in use."""
        return known_scalers.alive()

    @property
    def gradient_names(self) -> Dict[int, Tuple[str, str]]:
        """id(leaf) -> (module, name), for locating."""
        return {key: (place.module, place.name) for key, place in self.names.places.items()}

    def open(self) -> None:
        """Say who we are; the run itself is opened by the first update, when the roots are known. Never raises."""
        patch.on_failure(self._part_failed)
        recording = patch.optional("tail", "recorder")
        if recording is not None:
            self.recorder = recording.Recorder(self)
        inputs = patch.optional("inputs", "inputs")
        if inputs is not None:
            self.inputs = inputs.InputGate(self)
        for name in ("tail", "inputs", "locate", "buffers"):
            if not patch.usable(name):
                self.coverage.note(f"{name}: switched off by FIRSTBAD_OFF" if name not in patch.broken()
                                   else f"{name}: failed: {patch.broken()[name]}")

    def _part_failed(self, part: str, sentence: str) -> None:
        if self.dead:
            return
        if part in ("session", "gate"):
            self.stop(f"the guard itself failed: {sentence}")
        elif part != "coverage":
            self.coverage.note(f"{part}: off from step {self.number} on, it failed: {sentence}")

    def _open_run(self) -> None:
        """fb_run_open, by what the ranks agreed on."""
        from . import ranks as ranks_module

        self.ranks = ranks_module.join(self, self.roots)
        self.rank, self.world = self.ranks.rank, self.ranks.world
        given = self.settings
        tensors = sum(1 for root in self.roots for _ in root.parameters()) if self.roots else 0
        for optimizer in known_optimizers.alive():
            tensors += sum(len(group["params"]) for group in optimizer.param_groups)
        config = abi.RunConfig.new(
            rank=self.rank, world=self.world, dp_rank=getattr(self.ranks, "dp_rank", -1),
            on_bad={"skip": abi.ON_BAD_SKIP, "halt": abi.ON_BAD_HALT, "observe": abi.ON_BAD_OBSERVE}[given.get("on_bad") or "skip"],
            max_skips=int(given.get("max_skips") or 3), agreement=self.ranks.agreement, threads=0,
            replicated=int(self.ranks.replicated), sites_max=max(65536, 8 * tensors))
        if given.get("run_dir"):
            config.dir = os.fsencode(given["run_dir"])
        run_id = self.ranks.run_id or given.get("run_id") or ""
        if run_id:
            config.run_id = run_id.encode()
        lib = _native.lib()
        with self.ranks.environment():
            if self.world == 1 and not self.ranks.attempt:
                _native.call(lib.fb_run_open_alone, ctypes.byref(self.run), ctypes.byref(config))
            else:
                config.attempt = max(1, self.ranks.attempt)
                _native.call(lib.fb_run_open, ctypes.byref(self.run), ctypes.byref(config))
        self.folder = _native.text(lib.fb_run_folder(self.run))
        self.coverage.open(self.run)
        for line in self.ranks.not_covered:
            self.coverage.note(line)
        self.loss_site = self.names.site(self.run, abi.ROLE_LOSS, "", "loss")
        self.gates.opened()
        self.number = self.first_step = self._first_number() if self.first_wanted is None else self.first_wanted
        self.resumed = self.number > 0
        atexit.register(_close_at_exit, weakref.ref(self))
        note = sys.modules.get("firstbad.bootstrap.hook")
        if note is not None:
            note.note(training=True)

    def _first_number(self) -> int:
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

    def close(self) -> None:
        """At exit, or when a guard is closed: an update that nobody ended is given up."""
        if self.dead:
            return
        try:
            self._lost(getattr(sys, "last_value", None))
            if self.update is not None:
                self.end_update()
            saves = sys.modules.get(__package__ + ".saves")
            if saves is not None and hasattr(saves, "closing"):
                saves.closing(self)
        except Exception as why:
            patch.failed("session", why)
        self._release()

    def stop(self, why: str) -> None:
        """We failed: what is open is given up, nothing is guarded from here on, and coverage says so."""
        self.coverage.note(f"nothing is guarded from step {self.number} on: {why}")
        if self.ranks is not None:
            self.ranks.leave(why)
        self._release()

    def _release(self) -> None:
        if self.dead:
            return
        self.dead = True
        self.optim.release()
        if self.recorder is not None:
            self.recorder.drop()
        run, self.run = self.run, ctypes.c_void_p()
        if not run.value:
            return
        lib, error = _native.lib(), abi.Error()
        if self.update is not None and self.update.open:
            lib.fb_step_abandon(run, ctypes.byref(error))
        self.coverage.close(self.folder, self.rank, {
            "updates": self.updates, "skipped": self.skips, "python_ns": patch.clock.spent_ns - patch.clock.other_ns,
            "incident_ns": patch.clock.other_ns})
        self.update = None
        lib.fb_run_own(run, None, 0, ctypes.byref(error))
        lib.fb_run_close(run)
        self.owned = state.Owned()

    # ---- an update begins ------------------------------------------------------------------------------------------------------------

    def mine(self) -> bool:
        """This call is the program's own, on the thread that trains, outside of replays and of what we guard already."""
        return not self.dead and threading.get_ident() == self.thread and not untouched.replaying()

    def _begin(self) -> Update:
        """A new update, in Python only: the library hears of it at the first need."""
        update = self.update = Update(self.number)
        for optimizer in known_optimizers.alive():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    gradient = parameter.grad
                    if gradient is not None:
                        update.stale[id(parameter)] = (weakref.ref(gradient), gradient._version)
        return update

    def need_step(self) -> Update:
        """fb_step_begin, where it was not called yet. Sites and owned state are brought up to date first. Raises LibraryError."""
        update = self.update if self.update is not None else self._begin()
        if update.open:
            return update
        if not self.run.value:
            self._open_run()
            update.number = self.number
        self._refresh_names()
        self._prepare_ranks()
        optimizers = known_optimizers.alive()
        self.owned.refresh(self.run, self.names, optimizers)
        step = abi.Step.new(step=update.number, micro_steps=0)
        if update.fingerprint is not None:
            step.known |= abi.KNOWN_BATCH_FINGERPRINT
            step.batch_fingerprint = update.fingerprint & (2**64 - 1)
        if self.checkpoint_parent is not None:
            step.known |= abi.KNOWN_CHECKPOINT_PARENT
            step.checkpoint_parent = self.checkpoint_parent
        rate = self._learning_rate(optimizers)
        if rate is not None:
            step.known |= abi.KNOWN_LEARNING_RATE
            step.learning_rate = rate
        scale = self.scaling.scale_now()
        if scale is not None:
            step.known |= abi.KNOWN_LOSS_SCALE
            step.loss_scale = scale
        step.known |= abi.KNOWN_RNG_HASH
        step.rng_state_hash = _rng_hash()
        samples = update.samples
        if samples:
            known = [int(sample) for sample in samples if sample is not None]
            numbers = (ctypes.c_int64 * len(known))(*known)
            step.sample_ids, step.sample_count = numbers, len(known)
        if self.inputs is not None:
            self.inputs.before_step()
        lib = _native.lib()
        _native.call(lib.fb_step_begin, self.run, ctypes.byref(step))
        update.open = True
        for index in range(1, update.micro + 1):
            _native.call(lib.fb_step_micro, self.run, index)
        return update

    def _refresh_names(self) -> None:
        optimizers = known_optimizers.alive()
        groups = tuple(len(group["params"]) for optimizer in optimizers for group in optimizer.param_groups)
        known = (len(self.roots), len(optimizers)) + groups
        if known == self._known:
            return
        self._known = known
        owned = [parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]]
        self._name_all(owned)
        self.names.add_sites(self.run, owned)
        self.gates.forget_tables()

    def _name_all(self, owned: List[torch.Tensor]) -> None:
        """Scopes: the only root, if it holds all that optimizers own; else the outermost modules that hold any of it."""
        if not self.names.scopes:
            inner = [unwrapped(root) for root in self.roots]
            held = {id(p) for p in inner[0].parameters()} if len(inner) == 1 else set()
            if len(inner) == 1 and (not owned or all(id(p) in held for p in owned)):
                self.names.add_scope(inner[0])
            else:
                from . import names

                for module in names.tops(owned) if owned else []:
                    if module.__class__.__module__.split(".")[0] != "torchmetrics":
                        self.names.add_scope(module)
        for root in self.roots:
            module = unwrapped(root)
            if isinstance(module, torch.nn.Module) and not any(module is m for scope in self.names.scopes for m in scope.modules()):
                self.names.add_scope(module)
        self.names.refresh()
        loose = [p for p in owned if id(p) not in self.names.places]
        if loose:
            self.names.add_loose(loose, "optimizer")

    @staticmethod
    def _learning_rate(optimizers: List[Any]) -> Optional[float]:
        for optimizer in optimizers:
            rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
            if isinstance(rate, torch.Tensor):
                rate = rate.item() if rate.device.type == "cpu" and rate.numel() == 1 else None
            if isinstance(rate, (int, float)):
                return float(rate)
        return None

    # ---- roots -----------------------------------------------------------------------------------------------------------------------

    def root_enter(self, root: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
        """A root is about to run. True: it is watched, and root_exit must follow. Cost: 50-100 us."""
        if self.halted is not None or self.in_backward or self.inside is not None:
            return False
        if not self.optim.idle():
            return False
        update = self.update
        if update is not None and (update.over() or (update.verdict is not None and not self.optim.stepping)):
            self.end_update()
            update = None
        elif update is not None and update.forward_failed:
            self.give_up("a forward of this update raised an exception, and the program went on")
            update = None
        elif update is not None and update.backward_since_forward and _reset(update):
            self.give_up("")
            self.coverage.note("gradients were reset without a step of any optimizer of torch: what was done with them is not gated")
            update = None
        elif update is not None and update.backwards == 0 and update.calls.held and self._leads_nowhere(update):
            self._restart(update)
        if update is None:
            update = self._begin()
        if not any(root is known for known in self.roots):
            update.met.append(root)
            self._meet(root)
        if update.backward_since_forward:
            self._next_micro(update)
        self.inside = root
        name = self.names.of_root(root) if self.names.scopes else ""
        if id(root) not in update.roots:
            update.roots.append(id(root))
        fingerprint, samples = self._enter_inputs(root, name, args, kwargs)
        if update.fingerprint is None:
            update.fingerprint = fingerprint
        if samples is not None and not update.samples_given:
            update.samples = list(update.samples or []) + list(samples)
        kept = self._enter_buffers(root, update)
        update.calls.held.append(Call(kept))
        self._record_enter(root, name, args, kwargs, [(live, copy) for live, copy, _ in kept.values()])
        return True

    @staticmethod
    def _leads_nowhere(update: Update) -> bool:
        """No forward so far can be part of an update: its graph is gone. Or there are so many that keeping them would cost memory."""
        return update.calls.prune() == 0 or len(update.calls.held) >= ROOT_CALLS_MAX

    def _restart(self, update: Update) -> None:
        """The update begins with the forward that comes now: those before were none of its."""
        if len(update.calls.held) >= ROOT_CALLS_MAX:
            self.coverage.note(f"more than {ROOT_CALLS_MAX} forwards without a backward: the first of them are not recorded")
        self._forget_parts()
        update.calls.forget()
        self.roots = [root for root in self.roots if not any(root is met for met in update.met)]
        update.met.clear()
        update.roots.clear()
        update.samples = update.fingerprint = None

    def _meet(self, root: Any) -> None:
        self.roots.append(root)
        if self.world > 1 or (torch.distributed.is_available() and torch.distributed.is_initialized()):
            self._watch(root)

    @patch.guest("ddp")
    def _watch(self, root: Any) -> None:
        ddp = patch.optional("ddp", "ddp")
        if ddp is not None:
            ddp.watch(root)

    @patch.guest("inputs", (None, None))
    def _enter_inputs(self, root: Any, name: str, args: Any, kwargs: Any) -> Tuple[Optional[int], Any]:
        if self.inputs is None:
            return None, None
        result: Tuple[Optional[int], Any] = self.inputs.enter(root, name, args, kwargs)
        return result

    @patch.guest("buffers", {})
    def _enter_buffers(self, root: Any, update: Update) -> Any:
        if not isinstance(root, torch.nn.Module):
            return {}
        return self.buffers.enter(root, update.calls.before() if update.backwards else {})

    @patch.guest("tail")
    def _record_enter(self, root: Any, name: str, args: Any, kwargs: Any, kept: Any) -> None:
        if self.recorder is not None:
            self.recorder.root_enter(root, name, args, kwargs, None, kept)

    def root_exit(self, root: Any, outputs: Any, failed: bool = False) -> None:
        """The root that was entered returned, or raised."""
        if self.inside is not root:
            return
        self.inside = None
        if failed:
            if self.update is not None:
                self.update.forward_failed = True
            self._lost(sys.exc_info()[1])
            return
        if self.update is not None and self.update.backwards == 0:
            self._returned(self.update, outputs)
        if self.inputs is not None:
            self.inputs.left(outputs)
        self._record_exit(outputs)

    def input_fault(self, _evidence: Any) -> None:
        """torch is about to refuse an id of the batch, and the finding is told: where nobody else has a say, the case is opened now, since
        the forward that runs will not come back. Raises Halted."""
        update = self.update
        if update is not None and update.open and update.verdict is None and self.world == 1:
            self.gates.decide(update)

    @patch.guest("buffers")
    def _returned(self, update: Update, outputs: Any) -> None:
        if update.calls.held:
            update.calls.held[-1].returned(outputs)

    @patch.guest("tail")
    def _record_exit(self, outputs: Any) -> None:
        if self.recorder is not None:
            self.recorder.root_exit(outputs)

    def _next_micro(self, update: Update) -> None:
        update.backward_since_forward = False
        pending = [loss for loss in update.losses if not loss.finite and not loss.told]
        if pending and self.gates.gradients_finite():
            # The program saw it itself and left the batch out: what it does next is not to be withheld for it.
            for loss in pending:
                update.losses.remove(loss)
            self.coverage.note("a loss was not finite, and the program itself left that batch out")
        update.micro += 1
        if update.open:
            _native.call(_native.lib().fb_step_micro, self.run, update.micro)
        self._next_micro_of_ranks()

    @patch.guest("ddp")
    def _prepare_ranks(self) -> None:
        ddp = sys.modules.get(__package__ + ".ddp")
        if ddp is not None:
            ddp.prepare(self)

    @patch.guest("ddp")
    def _next_micro_of_ranks(self) -> None:
        ddp = sys.modules.get(__package__ + ".ddp")
        if ddp is not None:
            ddp.next_micro(self)

    @patch.guest("ddp")
    def _passed_by_ranks(self, update: Update) -> None:
        ddp = sys.modules.get(__package__ + ".ddp")
        if ddp is not None and self.ranks is not None:
            ddp.passed(self, update)

    @patch.guest("ranks")
    def _lost(self, error: Optional[BaseException]) -> None:
        """The program raised this. Did a rank not answer?"""
        from . import ranks as ranks_module

        ranks_module.lost(self, error)

    # ---- backward --------------------------------------------------------------------------------------------------------------------

    def backward_enter(self, tensors: Any, grad_tensors: Any, kwargs: Dict[str, Any]) -> bool:
        """torch.autograd.backward is about to run. True: backward_exit must follow."""
        if self.halted is not None or self.inside is not None or self.in_backward:
            return False
        if not self.optim.idle():
            return False
        update = self.update
        if update is not None and update.over():
            if update.skipped and not update.stepped and not update.scaler_updated:
                return False  # withheld, and not over yet: what is added to it goes with it
            self.end_update()
            update = None
        update = self.need_step()
        if self.inputs is not None:
            self.inputs.in_step()
        self.in_backward += 1
        losses = self._losses(update, tensors, grad_tensors)
        self._record_backward(tensors, grad_tensors, kwargs, losses)
        update.backwards += 1
        update.backward_since_forward = True
        return True

    def _losses(self, update: Update, tensors: Any, grad_tensors: Any) -> List[Any]:
        """The scalars that backward begins at, as they were before a scaler multiplied them."""
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        seeds = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) or grad_tensors is None else list(grad_tensors)
        out = []
        for index, tensor in enumerate(given):
            seeded = index < len(seeds) and seeds[index] is not None
            scaled = update.scaled.get(id(tensor))
            loss = scaled[1] if scaled is not None and scaled[0] is tensor else tensor
            out.append(loss)
            if not seeded and loss.numel() <= LOSS_ELEMENTS_MAX:
                self.gates.see_loss(update, loss)
        return out

    @patch.guest("tail")
    def _record_backward(self, tensors: Any, grad_tensors: Any, kwargs: Dict[str, Any], losses: List[Any]) -> None:
        if self.recorder is not None:
            self.recorder.backward_enter(tensors, grad_tensors, kwargs, losses)

    def backward_exit(self, failed: bool = False) -> None:
        self.in_backward = 0
        if self.update is not None:
            self.update.sample = self._sample()
        self._record_backward_exit()
        if failed and self.update is not None:
            self.update.forward_failed = True
            self._lost(sys.exc_info()[1])
        if self.update is not None and self.update.in_backward:
            self.optim.stepped_in_backward()

    def _sample(self) -> Any:
        """One gradient, as backward left it."""
        for optimizer in known_optimizers.alive():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        return parameter, weakref.ref(parameter.grad), parameter.grad._version
        for root in self.roots:
            for parameter in root.parameters() if isinstance(root, torch.nn.Module) else ():
                if parameter.grad is not None:
                    return parameter, weakref.ref(parameter.grad), parameter.grad._version
        return None

    @patch.guest("tail")
    def _record_backward_exit(self) -> None:
        if self.recorder is not None:
            self.recorder.backward_exit()

    # ---- an update ends --------------------------------------------------------------------------------------------------------------

    def end_update(self) -> None:
        """The update is over: its record is written, what was kept for it is let go. Raises Halted for an update that was held back."""
        update = self.update
        if update is None:
            return
        if update.proposed:
            self.optim.settle_proposal()
        if update.open:
            self._end_step(update)
        counted = update.verdict is not None
        self.update = None
        self.last = update
        self.optim.over()
        if counted:
            self.number += 1
            self.updates += 1
            self.skips += int(update.skipped)
        if update.skipped:
            self.owned.mark()
        if update.backwards and not update.roots:
            _look_for_roots(self.updates)
            if patch.compiles():
                self.coverage.note("the model is called within compiled functions, or was compiled in part: its batch is not seen, and "
                                   "buffers that its forward changes are not put back")
        self._forget(update)

    def _end_step(self, update: Update) -> None:
        lib = _native.lib()
        if update.verdict is not None and (update.skipped or update.applied):
            if update.applied:
                self.gates.check_update()
            result = abi.StepResult.new()
            loss = next((loss for loss in reversed(update.losses)), None)
            if loss is not None and loss.tensor.device.type == "cpu":
                result.known |= abi.KNOWN_LOSS
                result.loss = float(loss.tensor.item().real)
            if update.grad_norm is not None:
                result.known |= abi.KNOWN_GRAD_NORM
                result.grad_norm = update.grad_norm
            _native.call(lib.fb_step_end, self.run, ctypes.byref(result))
        else:
            if update.verdict is not None and not update.scaler_updated:
                self.coverage.note("gradients were looked at, and no optimizer of torch stepped: what was done with them is not gated")
            _native.call(lib.fb_step_abandon, self.run)
        update.open = False

    def _forget(self, update: Update) -> None:
        if patch.usable("buffers"):
            roots = [root for root in self.roots if id(root) in update.roots and isinstance(root, torch.nn.Module)]
            if self.buffers.learn(roots, update.calls.before()) and update.skipped:
                self.coverage.note("buffers above 64 MiB that forward changed were not put back in the first updates")
        self._forget_parts()
        update.calls.forget()
        update.losses.clear()
        update.scaled.clear()
        update.stale.clear()
        update.gated.clear()

    def _forget_parts(self) -> None:
        if self.recorder is not None:
            self.recorder.drop()
        if self.inputs is not None and patch.usable("inputs"):
            self._forget_inputs()

    @patch.guest("inputs")
    def _forget_inputs(self) -> None:
        self.inputs.forget()

    def give_up(self, why: str) -> None:
        """The program left this update unfinished: nothing of it counts."""
        update, self.update = self.update, None
        if update is None:
            return
        self._passed_by_ranks(update)
        if update.open and not update.applied:
            _native.call(_native.lib().fb_step_abandon, self.run)
        elif update.open:
            self.update = update
            self.end_update()
            return
        self._forget(update)

    def between(self) -> bool:
        """May something be done that the library allows between updates only, such as a save? An update that has stepped is ended
        here; one that has only begun is given up, and begun again by the next forward. False in the middle of one."""
        update = self.update
        if update is None:
            return bool(self.run.value)
        if self.optim.stepping is not None or self.in_backward or self.inside is not None:
            return False
        if update.over() or update.verdict is not None:
            self.end_update()
        elif update.backwards == 0:
            self.reopen()
        return bool(self.run.value) and (self.update is None or not self.update.open)

    def reopen(self) -> None:
        """Give the step up towards the library, and begin it again at the next need: between the two, sites may be added."""
        update = self.update
        if update is not None and update.open and update.verdict is None:
            _native.call(_native.lib().fb_step_abandon, self.run)
            update.open = False
            for loss in update.losses:
                loss.told = False

    # ---- the gate --------------------------------------------------------------------------------------------------------------------

    def gate(self, why: str, optimizer: Any = None) -> None:
        """All gradients of the update are there, and nobody has changed them yet. Raises Halted."""
        if self.halted is not None:
            raise self.halted
        from . import ranks as ranks_module

        try:
            self.gates.run(why, optimizer)
        except ranks_module.RanksLost as lost:
            number = self.number if self.update is None else self.update.number
            say.write(f"firstbad: nothing is guarded from step {number} on, training goes on: {lost}\n")
            self.stop(str(lost))


def _reset(update: Update) -> bool:
    """Did somebody take away or zero the gradients that the last backward left, so that what comes next does not add to them?"""
    if update.sample is None:
        return False
    parameter, gradient, version = update.sample
    now = parameter.grad
    if now is None or gradient() is not now:
        return True
    return now._version != version and not bool(now.any())


def _rng_hash() -> int:
    """64 bits of torch's stream. Cost: 5 us."""
    stream = torch.get_rng_state()
    held = (ctypes.c_char * stream.numel()).from_address(stream.data_ptr())
    return int.from_bytes(hashlib.blake2b(held, digest_size=8).digest(), "little")


def _close_at_exit(reference: "weakref.ref[Session]") -> None:
    session = reference()
    if session is not None and session is _current:
        close()
