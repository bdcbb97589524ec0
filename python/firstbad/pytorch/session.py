"""The life of a guarded training process: when an update begins and ends, and what the parts are told of it.

One session a process, opened by the first training forward (or backward, or optimizer step) and not before: the process of a
launcher, a worker of a DataLoader, and one that only evaluates open nothing. Everything here runs on the thread that trains.

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
import os
import sys
import threading
import weakref
from typing import Any, Dict, List, Optional, Tuple

import torch

from .. import _abi as abi
from .. import _native
from ..errors import Halted
from . import begin, patch, state, untouched
from .calls import Call
from .coverage import Coverage
from .gate import Gate
from .names import Names
from .optim import Optimizers
from .parts import Parts
from .registry import optimizers as known_optimizers, scalers as known_scalers
from .scaler import Scalers
from .update import Update

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
    hooks, roots = sys.modules.get(f"{__package__}.hooks"), sys.modules.get(f"{__package__}.roots")
    if hooks is not None and roots is not None and hooks.installed():
        roots.search(until)


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
        self.parts = Parts(self)
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
        self.known: Tuple[int, ...] = ()  # how many roots, optimizers and parameters have names
        self.loss_site = 0
        self.folder = ""

    # ---- open and close ----------------------------------------------------------------------------------------------------------

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
        for line in self.parts.names_of_parts():
            self.coverage.note(line)
        atexit.register(_close_at_exit, weakref.ref(self))

    def _part_failed(self, part: str, sentence: str) -> None:
        if self.dead:
            return
        if part in ("session", "gate"):
            begin.note(error=None if self.run.value else f"the guard itself failed: {sentence}")
            self.stop(f"the guard itself failed: {sentence}")
        elif part != "coverage":
            self.coverage.note(f"{part}: off from step {self.number} on, it failed: {sentence}")

    def _open_run(self) -> None:
        """At the first need: the roots that train are known by now."""
        begin.open_run(self)
        self.coverage.open(self.run)
        for line in self.ranks.not_covered:
            self.coverage.note(line)
        self.loss_site = self.names.site(self.run, abi.ROLE_LOSS, "", "loss")
        self.gates.opened()
        self.number = self.first_step = begin.first_number() if self.first_wanted is None else self.first_wanted
        self.resumed = self.number > 0
        begin.note(training=True)

    def close(self) -> None:
        """At exit, or when a guard is closed: an update that nobody ended is given up."""
        if self.dead:
            return
        try:
            self.parts.lost(getattr(sys, "last_value", None))
            self.parts.ending()
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

    # ---- an update begins --------------------------------------------------------------------------------------------------------

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
        begin.refresh_names(self)
        self.parts.prepare()
        self.owned.refresh(self.run, self.names, known_optimizers.alive())
        step = begin.step_of(self, update)
        if self.inputs is not None:
            self.inputs.before_step()
        lib = _native.lib()
        _native.call(lib.fb_step_begin, self.run, ctypes.byref(step))
        update.open = True
        for index in range(1, update.micro + 1):
            _native.call(lib.fb_step_micro, self.run, index)
        return update

    # ---- roots -------------------------------------------------------------------------------------------------------------------

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
            self.give_up("")
            update = None
        elif update is not None and update.backward_since_forward and update.was_reset():
            self.give_up("gradients were reset without a step of any optimizer of torch: what was done with them is not gated")
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
        fingerprint, samples = self.parts.enter_inputs(root, name, args, kwargs)
        if update.fingerprint is None:
            update.fingerprint = fingerprint
        if samples is not None and not update.samples_given:
            update.samples = list(update.samples or []) + list(samples)
        kept = self.parts.enter_buffers(root, update)
        update.calls.held.append(Call(kept))
        self.parts.record_enter(root, name, args, kwargs, kept)
        return True

    @staticmethod
    def _leads_nowhere(update: Update) -> bool:
        """No forward so far can be part of an update: its graph is gone. Or there are so many that keeping them would cost
        memory."""
        return update.calls.prune() == 0 or len(update.calls.held) >= ROOT_CALLS_MAX

    def _restart(self, update: Update) -> None:
        """The update begins with the forward that comes now: those before were none of its."""
        if len(update.calls.held) >= ROOT_CALLS_MAX:
            self.coverage.note(f"more than {ROOT_CALLS_MAX} forwards without a backward: the first of them are not recorded")
        self.parts.drop()
        self.parts.forget_inputs(False)
        update.calls.forget()
        self.roots = [root for root in self.roots if not any(root is met for met in update.met)]
        update.met.clear()
        update.roots.clear()
        update.samples = update.fingerprint = None

    def _meet(self, root: Any) -> None:
        self.roots.append(root)
        if self.world > 1 or (torch.distributed.is_available() and torch.distributed.is_initialized()):
            self.parts.watch(root)

    def root_exit(self, root: Any, outputs: Any, failed: bool = False) -> None:
        """The root that was entered returned, or raised."""
        if self.inside is not root:
            return
        self.inside = None
        if failed:
            if self.update is not None:
                self.update.forward_failed = True
            self.parts.lost(sys.exc_info()[1])
            return
        if self.update is not None:
            self.parts.returned(self.update, outputs)
        if self.inputs is not None:
            self.inputs.left(outputs)
        self.parts.record_exit(outputs)

    def input_fault(self, _evidence: Any) -> None:
        """torch is about to refuse an id of the batch, and the finding is told: where nobody else has a say, the case is opened
        now, since the forward that runs will not come back. Raises Halted."""
        update = self.update
        if update is not None and update.open and update.verdict is None and self.world == 1:
            self.gates.decide(update)

    def _next_micro(self, update: Update) -> None:
        update.backward_since_forward = False
        if any(not loss.finite and not loss.told for loss in update.losses) and update.was_reset() and update.all_cleared():
            self._left_out(update)
        update.micro += 1
        if update.open:
            _native.call(_native.lib().fb_step_micro, self.run, update.micro)
        self.parts.next_micro()

    def _left_out(self, update: Update) -> None:
        """The program saw it itself and left the batch out, or cleared what backward had left: what it does next is not to be
        withheld for that, and no replay is to add it up."""
        if update.leave_out_losses():
            self.coverage.note("a loss was not finite, and the program itself left that batch out")
        if update.was_reset():
            self.parts.cleared()

    # ---- backward ----------------------------------------------------------------------------------------------------------------

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
        if update.backward_since_forward is False and update.backwards and update.was_reset() and update.all_cleared():
            self._left_out(update)
        if self.gates.adds_to_bad(update):
            return False
        if self.inputs is not None:
            self.inputs.in_step()
        self.in_backward += 1
        losses = self.gates.see_losses(update, tensors, grad_tensors)
        self.parts.record_backward(tensors, grad_tensors, kwargs, losses)
        update.backwards += 1
        update.backward_since_forward = True
        return True

    def backward_exit(self, failed: bool = False) -> None:
        self.in_backward = 0
        if self.update is not None:
            self.update.note_sample(self.roots)
            if self.ranks is not None and self.ranks.sharded:  # the modules reduce in each backward, and all ranks are in it
                self.ranks.averaged((id(self.update), self.update.backwards))
        self.parts.record_backward_exit()
        if failed and self.update is not None:
            self.update.forward_failed = True
            self.parts.lost(sys.exc_info()[1])
        if self.update is not None and self.update.in_backward:
            self.optim.stepped_in_backward()

    # ---- an update ends ----------------------------------------------------------------------------------------------------------

    def end_update(self) -> None:
        """The update is over: its record is written, what was kept for it is let go. Raises Halted for an update that was held
        back."""
        update = self.update
        if update is None:
            return
        if update.proposed:
            self.optim.settle_proposal()
        if update.open:
            begin.end_step(self, update)
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
                self.coverage.note("the model is called within compiled functions, or was compiled in part: its batch is not seen, "
                                   "and buffers that its forward changes are not put back")
        self._forget(update)

    def _forget(self, update: Update, healthy: Optional[bool] = None) -> None:
        """What was kept for it is let go. healthy: False for one that is given up, of which nothing is to be learnt."""
        self.parts.learn_buffers(update)
        self.parts.drop()
        self.parts.forget_inputs(healthy)
        update.calls.forget()
        update.losses.clear()
        update.scaled.clear()
        update.stale.clear()
        update.left.clear()
        update.gated.clear()

    def give_up(self, why: str) -> None:
        """The program left this update unfinished: nothing of it counts. why: for coverage, "" where that says nothing."""
        update, self.update = self.update, None
        if update is None:
            return
        if why:
            self.coverage.note(why)
        self.parts.passed(update)
        if update.open and not update.applied:
            begin.give_up(self, update)
        elif update.open:
            self.update = update
            self.end_update()
            return
        self._forget(update, False)

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
            begin.give_up(self, update)
            for loss in update.losses:
                loss.told = False

    # ---- the gate ----------------------------------------------------------------------------------------------------------------

    def gate(self, why: str, optimizer: Any = None) -> None:
        """All gradients of the update are there, and nobody has changed them yet. Raises Halted."""
        if self.halted is not None:
            raise self.halted
        self.gates.ask(why, optimizer)


def _close_at_exit(reference: "weakref.ref[Session]") -> None:
    session = reference()
    if session is not None and session is _current:
        close()
