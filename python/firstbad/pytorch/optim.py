"""Optimizers: the last gate before a step, hiding the gradients of one that is withheld, and updates that are held back.

A withheld step is an exact no-op: every optimizer of torch leaves alone what has no gradient, so gradients are taken away (None)
while `step` runs and given back after it. Zeroing them would still move momenta and apply weight decay.
"""
from __future__ import annotations

import functools
import inspect
import math
import os
import re
import sys
from typing import Any, Dict, List, Optional, Tuple

import torch

from .. import _abi as abi
from .. import _native
from . import patch, source, state, views
from .registry import optimizers as known_optimizers
from .update import Update

HOLD_UPDATES = 2  # of an attempt, and after a skip
HOLD = os.environ.get("FIRSTBAD_HOLD", "first")


class Optimizers:
    """Steps of a session. stepping: the optimizer whose step runs now."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.stepping: Optional[Any] = None
        self._hidden: List[Tuple[torch.Tensor, torch.Tensor, Optional[torch.Tensor]]] = []  # parameter, gradient, stand-in
        self._stranger: Optional[state.Held] = None
        self._before: Optional[state.Held] = None  # of one that changes its state before its closure is called
        self._whole: List[Any] = []  # optimizers that step in a compiled graph
        self._closure_calls = 0
        self._in_closure = False
        self._held: List[state.Held] = []
        self._late: List[Any] = []
        self._lines: Dict[int, Optional[str]] = {}
        self.hold_until = HOLD_UPDATES

    def first_evaluation(self) -> bool:
        """Inside the first call of a closure: the forward and backward of this update run within `step`."""
        return self._in_closure and self._closure_calls == 1

    # ---- the hooks of torch ------------------------------------------------------------------------------------------------------

    def before_step(self, optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Tuple[Any, Any]]:
        """The pre-hook: None, or (args, kwargs) with the closure wrapped."""
        if self.stepping is not None:
            if _is_running(self.stepping, 2 if self.stepping is optimizer else 1):
                return None  # one optimizer steps another, or itself by super().step(): the outer call was gated
            self._step_raised()
        known_optimizers.add(optimizer)
        if torch._C._current_graph_task_id() != -1:
            self._late.append(optimizer)
            if self.session.update is not None:
                self.session.update.in_backward = True
            return None
        self.stepping = optimizer
        closure = args[1] if len(args) > 1 and callable(args[1]) else kwargs.get("closure")
        try:
            if callable(closure):
                self._closure_calls = 0
                # It writes into its state before it calls the closure.
                self._before = self._keep(optimizer) if _evaluates_again(optimizer) else None
                wrapped = self._wrap(optimizer, closure)
                if len(args) > 1 and args[1] is closure:
                    return (args[0], wrapped) + tuple(args[2:]), kwargs
                return args, dict(kwargs, closure=wrapped)
            self._gate(optimizer)
        except BaseException:
            self.stepping = None
            self._unhide()
            raise
        return None

    def _wrap(self, optimizer: Any, closure: Any) -> Any:
        def evaluated() -> Any:
            self._closure_calls += 1
            self._in_closure = True
            try:
                loss = closure()
            finally:
                self._in_closure = False
            if self._closure_calls == 1:
                self._gate_in_closure(optimizer)
            elif self._hidden:
                self._hide(optimizer)
            return loss

        return evaluated

    @patch.guest("session")
    def _gate_in_closure(self, optimizer: Any) -> None:
        if self.session.dead or self.stepping is not optimizer:
            return
        try:
            self._gate(optimizer)
        except BaseException:
            self.stepping = None
            self._unhide()
            raise

    def _gate(self, optimizer: Any) -> None:
        session = self.session
        update = session.update
        if update is not None and update.stepped and (id(optimizer) in update.stepped or id(optimizer) not in update.expected):
            session.end_update()  # the same optimizer once more, or one that nobody looked at: an update of its own
        session.gate("optimizer", optimizer)
        update = session.update
        if update is None:
            return
        self._lines[id(optimizer)] = source.caller()
        if update.skipped:
            self._stranger = None if _is_torchs(optimizer) else self._before or self._keep(optimizer)
            self._hide(optimizer)
        elif not update.applied:
            if (self._wants_hold(update, optimizer) or _evaluates_again(optimizer)) and self._all_hold(bool(self._hold(optimizer))):
                update.proposed = True
            elif update.proposed:
                session.coverage.note("one optimizer of an update that was held back could not be: what it wrote is not undone")
            else:
                self._apply(update)

    def after_step(self, optimizer: Any) -> None:
        """The post-hook. Raises Halted for an update that was held back."""
        if self.stepping is not optimizer:
            return
        self.stepping = self._before = None
        self._in_closure = False
        self._unhide()
        update = self.session.update
        if self._stranger is not None:
            self._stranger.put_back()
            self._stranger = None
        if update is None:
            return
        update.stepped.append(id(optimizer))
        if update.expected.issubset(update.stepped):
            if update.proposed:
                self.settle_proposal()
            if not update.scaler_used:
                self.session.end_update()

    def _step_raised(self) -> None:
        """`step` raised: its post-hook never ran. Gradients that were hidden stay away: the program may have zeroed what it saw."""
        self.stepping = self._before = self._stranger = None
        self._in_closure = False
        self._hidden = []

    def idle(self) -> bool:
        """May an update begin here? Within a step only in the first call of its closure."""
        if self.stepping is None or self.first_evaluation():
            return True
        if _is_running(self.stepping):
            return False  # the closure is called again: the update was gated at the first
        self._step_raised()
        return True

    def over(self) -> None:
        """The update ended."""
        self._held = []
        self._lines.clear()
        update = self.session.last
        if update is not None and update.skipped:
            self.hold_until = max(self.hold_until, self.session.updates + 1 + HOLD_UPDATES)
        if update is not None and update.stepped:
            self.session.gates.learn(update)

    @staticmethod
    def owns(parameter: Any) -> bool:
        """Does any optimizer of torch own it?"""
        return any(parameter is p for o in known_optimizers.alive() for group in o.param_groups for p in group["params"])

    def release(self) -> None:
        """Nothing is guarded any more: give back what was taken."""
        self.stepping = None
        self._unhide()
        self._held = []

    # ---- steps within one compiled graph -----------------------------------------------------------------------------------------

    def before_whole(self, optimizers: Optional[List[Any]]) -> bool:
        """A compiled graph is about to run in which these optimizers step (None: those that are expected to). Raises Halted."""
        session = self.session
        if self.stepping is not None:
            return False
        session.gate("compiled", optimizers[0] if optimizers else None)
        update = session.update
        if update is None:
            return False
        self._whole = [o for o in known_optimizers.alive() if id(o) in update.expected]
        if update.skipped:
            for optimizer in self._whole:
                self._hide(optimizer)
        elif not update.applied:
            self._apply(update)
        self.stepping = self._whole[0] if self._whole else None
        return True

    def after_whole(self, returned: bool) -> None:
        """It has run, or raised."""
        self.stepping = None
        update = self.session.update
        if not returned:
            self._step_raised()
            return
        self._unhide()
        if update is not None:
            update.stepped += [id(optimizer) for optimizer in self._whole]
            if not update.scaler_used:
                self.session.end_update()

    # ---- a withheld step ---------------------------------------------------------------------------------------------------------

    def _hide(self, optimizer: Any) -> None:
        kind: Any = type(optimizer)
        zeros = self._stranger is not None and _reads_any_gradient(kind)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    stand_in = torch.zeros_like(parameter.grad) if zeros else None
                    self._hidden.append((parameter, parameter.grad, stand_in))
                    parameter.grad = stand_in

    def _unhide(self) -> None:
        hidden, self._hidden = self._hidden, []
        for parameter, gradient, stand_in in hidden:
            if parameter.grad is stand_in or parameter.grad is None:
                parameter.grad = gradient

    @patch.guest("hold")
    def _keep(self, optimizer: Any) -> Optional[state.Held]:
        """Not one of torch's own: it may do something without gradients, so what it changes is put back."""
        return state.Held(optimizer, True)

    # ---- held back ---------------------------------------------------------------------------------------------------------------

    def _apply(self, update: Update) -> None:
        _native.call(_native.lib().fb_step_apply, self.session.run)
        update.applied = True

    def tries_first(self) -> bool:
        """An update with a rate that is not finite is made and taken back, which tells where it goes wrong. Where it cannot be, or
        where another rank might not do the same, the rate itself stops the run."""
        return self.session.world == 1 and HOLD != "none" and patch.usable("hold") and not any(
            p.device.type != "cpu" for o in known_optimizers.alive() for group in o.param_groups for p in group["params"])

    def _wants_hold(self, update: Update, optimizer: Any) -> bool:
        if HOLD == "none" or not patch.usable("hold"):
            return False
        if HOLD == "all" or update.proposed:
            return True
        return self.session.updates < self.hold_until or (self.session.world == 1 and _has_bad_number(optimizer))

    def _all_hold(self, held: bool) -> bool:
        """Where ranks vote, an update that is held back takes a vote more: each rank holds it or none."""
        ranks = self.session.ranks
        if self.session.world == 1 or ranks.agreement != abi.AGREE_VOTE:
            return held
        if not int(ranks.max_ints([int(not held)])[0]):
            return True
        if held:
            self._held.pop()
            self.session.coverage.note("an update was not held back, since another rank could not")
        return False

    @patch.guest("hold", False)
    def _hold(self, optimizer: Any) -> bool:
        session = self.session
        if optimizer.param_groups and any(p.device.type != "cpu" for g in optimizer.param_groups for p in g["params"]):
            session.coverage.note("updates on a device are not held back, and the state that they make is not looked at")
            return False
        size = state.Held.size(optimizer)
        if size > state.HOLD_BYTES_MAX or (session.world == 1 and 4 * size > _memory_free()):
            session.coverage.note(f"no update was held back: a copy of {size >> 20} MiB of state was too much")
            return False
        self._held.append(self._before or state.Held(optimizer))
        return True

    def settle_proposal(self) -> None:
        """What the optimizers wrote lies in the place of the state: look at it, vote, and take it back if it is bad. Raises
        Halted."""
        session, lib = self.session, _native.lib()
        update: Update = session.update
        update.proposed = False
        tensors, sites = [], []
        for held in self._held:
            for key, parameter, tensor in held.written():
                place = session.names.places.get(id(parameter))
                if place is None:
                    continue
                role, name = (abi.ROLE_MOMENT, f"{place.name}.{key}") if key else (abi.ROLE_PARAMETER, place.name)
                site = session.names.known_site(role, place.module, name)
                # A moment that this very step made has no site yet, and a step is open: it is told under its parameter's.
                sites.append(place.parameter if site is None else site)
                tensors.append(tensor)
        table = views.Table(sites)
        table.update(tensors)
        if tensors:
            _native.call(lib.fb_step_check, session.run, abi.UPDATE, table.array, table.count)
        swapped = bool(lib.fb_step_findings(session.run))
        if swapped:
            self._swap()  # the library reads the state that is owned before it votes: it must be the one from before

        def others(words: Any) -> None:
            nonlocal swapped
            if not swapped and words[0] != abi.INT64_MAX:
                swapped = True
                self._swap()

        verdict = session.gates.vote(others)
        update.verdict = verdict
        if verdict.action == abi.PROCEED:
            if swapped:
                self._swap()
            self._apply(update)
        else:
            if not swapped:
                self._swap()
            session.gates.withhold(update)
        if not verdict.clean or verdict.action != abi.PROCEED:
            from . import replay_update  # with all that replays: no process needs it to begin

            update.held = [replay_update.Held(held.optimizer, session.gradient_names, self._lines.get(id(held.optimizer)),
                                              session.scaling.inverse_of(held.optimizer)) for held in self._held]
            session.gates.incident(update, verdict)
        self._held = []

    def _swap(self) -> None:
        for held in self._held:
            held.swap()

    # ---- optimizers that step inside backward ------------------------------------------------------------------------------------

    def stepped_in_backward(self) -> None:
        """Backward is over, and optimizers have stepped in it: what they made is looked at now, too late to withhold it."""
        session = self.session
        update: Update = session.update
        update.in_backward = False
        session.coverage.note("optimizers step inside backward: gated late, what they wrote is looked at afterwards")
        if update.verdict is None:
            update.verdict = session.gates.vote()
            if update.verdict.action == abi.PROCEED:
                self._apply(update)
        update.stepped += [id(optimizer) for optimizer in self._late]
        self._late = []
        if update.applied:
            session.gates.check_update(1)


def _has_bad_number(optimizer: Any) -> bool:
    """Is a hyperparameter not finite, a learning rate of 0/0 say? Cost: 1 us a group."""
    groups = optimizer.param_groups
    return any(isinstance(value, float) and not math.isfinite(value) for group in groups for value in group.values())


def _evaluates_again(optimizer: Any) -> bool:
    """It calls its closure more than once, at points where numbers may well overflow: its result is what counts."""
    return isinstance(optimizer, torch.optim.LBFGS)


def _is_torchs(optimizer: Any) -> bool:
    return type(optimizer).__module__.startswith("torch.optim.") and not isinstance(optimizer, torch.optim.LBFGS)


@functools.lru_cache(maxsize=64)
def _reads_any_gradient(kind: Any) -> bool:
    """An optimizer of the program's own that reads `p.grad` and asks nowhere whether there is one: without gradients it would
    raise. It is given zeros, and what it makes of them is put back."""
    try:
        source = "\n".join(inspect.getsource(base) for base in kind.__mro__
                           if base.__module__.split(".")[0] not in ("torch", "builtins"))
    except (OSError, TypeError):
        return False
    lines = [line for line in source.splitlines() if "closure" not in line]
    reads = any(re.search(r"\.grad\b", line) for line in lines)
    asks = r"\b(is|==|!=|is not)\s+None\b|\b(if|and|or|not)\s+[\w.\[\]]+\.grad\b|getattr\(|try:"
    return reads and not any(re.search(asks, line) for line in lines)


def _is_running(optimizer: Any, times: int = 1) -> bool:
    """Is `step` of this optimizer on the stack, in so many calls? It is not when it raised. The frame looked for is that of
    torch's wrapper around `step`."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "wrapper" and frame.f_locals.get("self") is optimizer and "pre_hook" in frame.f_code.co_varnames:
            times -= 1
            if times == 0:
                return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _memory_free() -> int:
    """Bytes that this process may still take, as far as the system says; a terabyte where it does not."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 1 << 40
