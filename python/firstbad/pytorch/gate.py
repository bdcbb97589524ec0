"""The gate: look at all gradients of an update, add what else is known, decide with the other ranks, and tell what came of it."""
from __future__ import annotations

import ctypes
import time
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

import torch

from .. import _abi as abi
from .. import _native
from . import begin, patch, say, views
from .registry import optimizers as known_optimizers
from .update import Loss, Update

UNKNOWN_MICROS = 31  # as long as no update was made: longer than most accumulate
UPDATE_PERIOD = 64  # every tensor of the state is looked at once in so many updates


class _Known(NamedTuple):
    """Gradients of some optimizers. parameters_held: how many the groups hold, by which a new one is noticed."""

    parameters: List[Any]
    owners: List[FrozenSet[int]]  # ids of the optimizers of each
    table: views.Table
    parameters_held: int


class Gate:
    """The decisions of a session."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._known: Optional[_Known] = None
        self._patterns: Dict[Any, Set[int]] = {}  # (roots, optimizers with new gradients) -> optimizers that stepped
        self._loose_site = 0
        self._loss_view = abi.View.new()
        self.micro_most = UNKNOWN_MICROS  # the number of the last micro-step, of the longest update so far

    def opened(self) -> None:
        """The run is open, no step is: sites that are always there. That of gradients without a site is no gradient to the
        library, for an update is gated only if every gradient that it knows was handed over."""
        self._loose_site = self.session.names.site(self.session.run, abi.ROLE_ACTIVATION, "", "gradient of a new parameter")
        self._loss_view.site = self.session.loss_site

    def forget_tables(self) -> None:
        """Optimizers or parameters changed."""
        self._known = None

    # ---- losses ------------------------------------------------------------------------------------------------------------------

    def see_losses(self, update: Update, tensors: Any, grad_tensors: Any) -> List[Any]:
        """The scalars that backward begins at, as they were before a scaler multiplied them; each is looked at. A tensor that is
        given a gradient from outside is no loss."""
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        seeds = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) or grad_tensors is None else list(grad_tensors)
        out = []
        for index, tensor in enumerate(given):
            seeded = index < len(seeds) and seeds[index] is not None
            scaled = update.scaled.get(id(tensor))
            loss = scaled[1] if scaled is not None and scaled[0] is tensor else tensor
            out.append(loss)
            if not seeded and loss.numel() == 1:
                self.see_loss(update, loss)
        return out

    def see_loss(self, update: Update, loss: torch.Tensor) -> None:
        """A loss, as backward is about to be given it. One that is not finite is told at the gate, if the program does not leave
        its batch out before. On another device it is looked at with the gradients."""
        kept = loss.detach()
        if kept.device.type != "cpu":
            update.losses.append(Loss(kept, update.micro, True, False))
            return
        held = views.fill(self._loss_view, kept)
        if held is None:
            return
        lib = _native.lib()
        first = ctypes.c_uint64()
        _native.call(lib.fb_scan_first, ctypes.byref(self._loss_view), ctypes.byref(first))
        finite = first.value == abi.NO_INDEX
        update.losses.append(Loss(kept, update.micro, finite, finite))
        if finite:
            _native.call(lib.fb_step_check, self.session.run, abi.LOSS, ctypes.byref(self._loss_view), 1)

    def _tell_losses(self, update: Update) -> None:
        """Losses that are not finite, as findings of the micro-step that they belong to."""
        lib = _native.lib()
        for loss in update.losses:
            if loss.told:
                continue
            loss.told = True
            if loss.finite and loss.micro != update.micro:
                continue
            if loss.micro == update.micro:
                views.fill(self._loss_view, loss.tensor)
                _native.call(lib.fb_step_check, self.session.run, abi.LOSS, ctypes.byref(self._loss_view), 1)
                continue
            finding = self.finding(loss.tensor, self.session.loss_site, abi.LOSS, loss.micro)
            _native.call(lib.fb_step_report, self.session.run, ctypes.byref(finding), 1)

    def finding(self, tensor: torch.Tensor, site: int, boundary: int, micro: int) -> abi.Finding:
        """A finding made of a tensor in host memory that is not finite."""
        view, held = views.one(tensor, site)
        out = abi.Finding.new(site=site, boundary=boundary, micro_step=micro)
        _native.call(_native.lib().fb_scan, ctypes.byref(view), ctypes.byref(out.stats))
        del held
        out.kind = out.stats.first_kind
        out.count = out.stats.nan + out.stats.pos_inf + out.stats.neg_inf
        out.first_index = out.stats.first_index
        return out

    # ---- which gradients ---------------------------------------------------------------------------------------------------------

    def expected(self, update: Update, optimizer: Any) -> List[Any]:
        """Optimizers that are going to step in this update: as updates of the same kind did before, else those that backward gave
        a new gradient. A gradient that an earlier update left there is nobody's concern until its optimizer steps."""
        alive = known_optimizers.alive()
        touched = [o for o in alive if _touched(update, o)]
        update.touched = frozenset(id(o) for o in touched)
        learnt = self._patterns.get((tuple(update.roots), update.touched))
        chosen = [o for o in alive if id(o) in learnt] if learnt is not None else touched
        if optimizer is not None and not any(o is optimizer for o in chosen):
            chosen.append(optimizer)
        return chosen

    def learn(self, update: Update) -> None:
        """The update is over: these optimizers stepped in it."""
        if update.stepped:
            self.micro_most = max(update.micro, self.micro_most if self._patterns else 0)
            self._patterns[(tuple(update.roots), update.touched)] = set(update.stepped)

    def _table(self) -> _Known:
        """Gradients of all parameters that optimizers own, in the order of the model."""
        alive = known_optimizers.alive()
        count = sum(len(group["params"]) for o in alive for group in o.param_groups)
        known = self._known
        if known is not None and known.parameters_held == count:
            return known
        parameters: List[Any] = []
        owners: List[Set[int]] = []
        at: Dict[int, int] = {}
        for optimizer in alive:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if id(parameter) not in at:
                        at[id(parameter)] = len(parameters)
                        parameters.append(parameter)
                        owners.append(set())
                    owners[at[id(parameter)]].add(id(optimizer))
        places = self.session.names.places
        order = {key: index for index, key in enumerate(places)}
        pairs = sorted(zip(parameters, owners), key=lambda pair: order.get(id(pair[0]), len(order)))
        sites = [self._site_of(places.get(id(parameter))) for parameter, _ in pairs]
        # Of parameters that no optimizer owns any more: the library knows their gradients, which are absent from now on.
        gone = (self.session.names.gone | {int(place.gradient) for place in places.values()}) - {*sites, abi.UINT32_MAX}
        table = views.Table(sites + sorted(gone))
        self._known = known = _Known([p for p, _ in pairs], [frozenset(o) for _, o in pairs], table, count)
        return known

    def _site_of(self, place: Any) -> int:
        if place is None or place.gradient == abi.UINT32_MAX:
            return self._loose_site
        return int(place.gradient)

    def adds_to_bad(self, update: Update) -> bool:
        """Backward is about to run, more often than in any update that was made so far: is a gradient that it adds to bad already?
        A program that looks at its gradients itself and leaves an update out, and forgets to clear them, never steps again: there
        is no gate to come, so the update is judged here. Raises Halted."""
        if self.session.world != 1 or update.verdict is not None or update.micro <= self.micro_most:
            return False
        if self.gradients_finite(update):
            return False
        self.run("backward")
        return update.skipped

    def gradients_finite(self, update: Optional[Update] = None) -> bool:
        """Is every gradient that is there now finite? For the rare path only: one read of all of them, told to nobody. update: only
        of optimizers whose gradients it wrote into."""
        lib = _native.lib()
        first = ctypes.c_uint64()
        for optimizer in known_optimizers.alive():
            if update is not None and not _touched(update, optimizer):
                continue
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        continue
                    view, held = views.one(parameter.grad)
                    if held is None:
                        continue
                    _native.call(lib.fb_scan_first, ctypes.byref(view), ctypes.byref(first))
                    if first.value != abi.NO_INDEX:
                        return False
        return True

    # ---- the gate ----------------------------------------------------------------------------------------------------------------

    def ask(self, why: str, optimizer: Any = None) -> None:
        """`run`, and where other ranks are lost nothing is guarded any more. Raises Halted."""
        from . import ranks as ranks_module

        try:
            self.run(why, optimizer)
        except ranks_module.RanksLost as lost:
            session = self.session
            number = session.number if session.update is None else session.update.number
            say.write(f"firstbad: nothing is guarded from step {number} on, training goes on: {lost}\n")
            session.stop(str(lost))

    def run(self, why: str, optimizer: Any = None) -> None:
        """Look, vote, decide. Called again for the same update it looks at what changed since, or was not looked at. Raises
        Halted."""
        session = self.session
        update: Update = session.need_step()
        if update.skipped:
            return
        optimizers = self.expected(update, optimizer)
        if update.verdict is None:
            update.expected = {id(o) for o in optimizers}
        known = self._table()
        parameters = known.parameters
        chosen = {id(o) for o in optimizers} | update.expected
        if len(chosen) >= len(known_optimizers.alive()):
            gradients = [p.grad for p in parameters]
        else:  # what belongs to the others alone is no part of this update
            gradients = [None if chosen.isdisjoint(owners) else p.grad for p, owners in zip(parameters, known.owners)]
        if update.verdict is not None:
            if all(g is None or _looked_at(update, p, g) for p, g in zip(parameters, gradients)):
                return
            if update.applied or update.proposed:
                session.coverage.note("gradients changed after an optimizer of the same update had stepped: nothing looked at them")
                return
            update.expected |= {id(o) for o in optimizers}
        seen, update.gated = update.gated, {id(p): (g, g._version) for p, g in zip(parameters, gradients) if g is not None}
        if update.verdict is not None and update.gated_backwards == update.backwards and self._others_voted() \
                and not self._bad_everywhere(update, [p.grad for p in parameters if _changed(seen, update.gated, p)]):
            return
        update.gated_backwards = update.backwards
        self.look_at(update, known.table, gradients)
        self.decide(update)

    def _others_voted(self) -> bool:
        return bool(self.session.world > 1 and self.session.ranks.agreement == abi.AGREE_VOTE)

    def _bad_everywhere(self, update: Update, gradients: List[Any]) -> bool:
        """Gradients were changed by the program after the ranks had voted, on this rank at least: do all ranks come to vote once
        more? A rank that changed nothing does not come, and a vote would wait for it; nor does one whose gradients stayed finite.
        So a rank for itself looks whether they did, and only where they did not asks in the store of the job who else is here.
        Where somebody is not, the update was let through elsewhere, and this rank stops. Cost: one read of what was changed."""
        if self._finite(gradients):
            return False
        update.again += 1
        if self.session.ranks.all_here(f"again/{update.number}/{update.again}"):
            return True
        if begin.observes(self.session):
            self.session.coverage.note("gradients that a rank changed after the vote, not finite: observed, not recorded")
            return False
        self.session.ranks.fail_alone("gradients were changed here after the ranks had voted, are not finite, and the others did "
                                      "not come to vote once more")
        return True

    @staticmethod
    def _finite(gradients: List[Any]) -> bool:
        """For the rare path: one read of all of them, told to nobody."""
        lib = _native.lib()
        first = ctypes.c_uint64()
        for gradient in gradients:
            view, held = views.one(gradient)
            if held is None:
                memory = views.memory_of(gradient)
                if memory is not None and not bool(torch.isfinite(memory).all()):
                    return False  # it lies on a device
                continue
            _native.call(lib.fb_scan_first, ctypes.byref(view), ctypes.byref(first))
            if first.value != abi.NO_INDEX:
                return False
        return True

    def look_at(self, update: Update, table: views.Table, gradients: List[Any]) -> None:
        """Gradients, losses, and if any of them is bad what is known of the batch."""
        self._look(update, table, gradients)
        self._tell_losses(update)
        if _native.lib().fb_step_findings(self.session.run):
            self.evidence(update)

    def note_versions(self) -> None:
        """Gradients were changed by somebody who is known to: clipping, unscaling. They need no second look."""
        update = self.session.update
        if update is None or update.verdict is None or self._known is None:
            return
        for parameter in self._known.parameters:
            if id(parameter) in update.gated and parameter.grad is not None:
                update.gated[id(parameter)] = (parameter.grad, parameter.grad._version)

    def _look(self, update: Update, table: views.Table, gradients: List[Any]) -> None:
        session, lib = self.session, _native.lib()
        if views.ELSEWHERE:
            elsewhere = [i for i, gradient in enumerate(gradients) if gradient is not None]
            table.update([None] * len(gradients))
        else:
            elsewhere = table.update(gradients)
        alone = session.world == 1
        boundary = abi.LOCAL_GRAD if alone else abi.REDUCED_GRAD
        array, count = table.array, table.count
        if elsewhere:  # a view of what lies on a device says that there is nothing, and that is not so
            apart = set(elsewhere)
            here = [view for i, view in enumerate(table.views) if i not in apart]
            array, count = (abi.View * max(1, len(here)))(*here), len(here)
        _native.call(lib.fb_step_check, session.run, boundary, array, count)
        if alone:  # nothing reduces them: what was looked at is what the optimizer gets
            _native.call(lib.fb_step_looked, session.run, abi.REDUCED_GRAD, array, count)
        elif session.ranks.sharded:
            self._local_only()
        device_losses = [loss for loss in update.losses if not loss.told and loss.tensor.device.type != "cpu"]
        if elsewhere or device_losses:
            self._look_elsewhere(update, boundary, [(gradients[i], table.views[i].site) for i in elsewhere], device_losses)

    @patch.guest("ddp")
    def _local_only(self) -> None:
        ddp = patch.optional("ddp", "ddp")
        if ddp is not None:
            ddp.local_only(self.session)

    def _look_elsewhere(self, update: Update, boundary: int, gradients: List[Tuple[Any, int]], losses: List[Loss]) -> None:
        device = patch.optional("device", "device")
        if device is None:
            self.session.coverage.note("gradients that are not in host memory")
            return
        device.check(self.session, boundary, gradients, [(loss.tensor, loss.micro) for loss in losses])
        for loss in losses:
            loss.told = True

    @patch.guest("inputs")
    def evidence(self, update: Update) -> None:
        if self.session.inputs is not None:
            self.session.inputs.evidence(update)

    def vote(self, before_settle: Any = None) -> abi.Verdict:
        """Ballot and settle. before_settle(words) is called between the two, where ranks vote. Raises LibraryError."""
        session, lib = self.session, _native.lib()
        verdict = abi.Verdict.new()
        if session.world > 1 and session.ranks.agreement == abi.AGREE_VOTE:
            words = (ctypes.c_int64 * 4)()
            _native.call(lib.fb_step_ballot, session.run, words)
            reduced = session.ranks.min4(list(words))
            if before_settle is not None and reduced is not None:
                before_settle(reduced)
            given = (ctypes.c_int64 * 4)(*reduced) if reduced is not None else None
            _native.call(lib.fb_step_settle, session.run, given, ctypes.byref(verdict))
            if reduced is None:
                say.no_quorum(session, verdict)
        else:
            _native.call(lib.fb_step_vote_alone, session.run, ctypes.byref(verdict))
        return verdict

    def decide(self, update: Update) -> None:
        """Vote on what was looked at, and do what the verdict says. Raises Halted."""
        verdict = self.vote()
        update.verdict = verdict
        if verdict.action != abi.PROCEED:
            self.withhold(update)
        if not verdict.clean and not verdict.fault and self._persists(update, verdict):
            update.verdict = verdict = self.vote()
        if not verdict.clean or verdict.action != abi.PROCEED:
            self.incident(update, verdict)

    def withhold(self, update: Update) -> None:
        """Nothing of this update is to be applied."""
        update.skipped = True
        self._buffers_back(update)
        if self.session.world > 1:
            self._reduction_back()

    @patch.guest("ddp")
    def _reduction_back(self) -> None:
        ddp = patch.optional("ddp", "ddp")
        if ddp is not None:
            ddp.withheld(self.session)

    @patch.guest("buffers")
    def _buffers_back(self, update: Update) -> None:
        self.session.buffers.put_back(update.calls.before())

    # ---- afterwards --------------------------------------------------------------------------------------------------------------

    def incident(self, update: Update, verdict: abi.Verdict) -> None:
        """Locate, tell, and stop where the run is halted: the same on all ranks."""
        began = time.perf_counter_ns()
        try:
            update.located = self._locate(update, verdict)
            halted = say.told(self.session, update, verdict)
        finally:
            patch.clock.other_ns += time.perf_counter_ns() - began
        if verdict.action == abi.HALT:
            self.session.halted = halted
            raise halted

    @patch.guest("locate")
    def _locate(self, update: Update, verdict: abi.Verdict) -> Any:
        locate = patch.optional("locate", "locate") if self.session.settings.get("locate", True) else None
        if locate is None or self.session.recorder is None or self.session.inside is not None:
            return None  # a forward that did not return cannot be replayed; what it was refused for is known
        if self.session.world > 1 and self.session.ranks.failure is not None:
            return None  # a search asks the other ranks at each step
        return locate.incident(self.session, update, verdict)

    @patch.guest("locate", False)
    def _persists(self, update: Update, verdict: abi.Verdict) -> bool:
        probing = patch.optional("locate", "probing") if self.session.settings.get("locate", True) else None
        if probing is None:
            return False
        began = time.perf_counter_ns()
        try:
            return bool(probing.persists(self.session, update, verdict))
        finally:
            patch.clock.other_ns += time.perf_counter_ns() - began

    def check_update(self, period: int = 0) -> None:
        """After the last optimizer: one in `period` tensors of the state (0: all of a small one, at most one in 64). What is found
        is told to the next update's vote."""
        owned = self.session.owned
        if owned.table is None or not owned.rows:
            return
        if not period:
            period = max(1, min(UPDATE_PERIOD, len(owned.rows), owned.size >> 20))
        _native.call(_native.lib().fb_step_check_sampled, self.session.run, abi.UPDATE, owned.table.array, len(owned.rows), period)


def _looked_at(update: Update, parameter: Any, gradient: torch.Tensor) -> bool:
    known = update.gated.get(id(parameter))
    return known is not None and known[0] is gradient and known[1] == gradient._version


def _changed(before: Dict[int, Tuple[Any, int]], now: Dict[int, Tuple[Any, int]], parameter: Any) -> bool:
    """Is its gradient another one than was looked at?"""
    was, is_now = before.get(id(parameter)), now.get(id(parameter))
    return is_now is not None and (was is None or was[0] is not is_now[0] or was[1] != is_now[1])


def _touched(update: Update, optimizer: Any) -> bool:
    """Did a backward of this update write into any gradient of this optimizer?"""
    stale = update.stale
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            known = stale.get(id(parameter))
            if known is None or known[0]() is not gradient or known[1] != gradient._version:
                return True
    return False
