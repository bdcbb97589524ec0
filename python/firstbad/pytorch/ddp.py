"""Which rank brought it: the local gradients of DDP, looked at before they are averaged.

After the reduction every rank has the same gradient, and a NaN of one is a NaN of all. A hook on each parameter runs after its
gradient was accumulated and before DDP is told that it is ready, so what it sees is this rank's own, also where gradients are
views into the buckets that are reduced in place. Each is looked at there and then, still in the cache: 17 M elements in 150
parameters take 1.4 ms that way and 5 ms after backward. A communication hook is not used: DDP takes one, and it belongs to the
program.

Local findings come earlier in the order than reduced ones, so the vote names the rank that has one.
"""
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, List, Set

import torch

from .. import _abi as abi
from .. import _native
from . import patch, session as sessions, sharded, views

# Nothing of ours lies on a module: a model is pickled and copied without us.
_watches: "weakref.WeakKeyDictionary[torch.nn.Module, Watch]" = weakref.WeakKeyDictionary()


def watch(root: torch.nn.Module) -> None:
    """Watch every DDP module of a root. Nothing happens for one that is watched already. Cost: a hook for each parameter."""
    sharded.learn(root)
    for module in list(root.modules()):
        if sharded.is_ddp(module) and module not in _watches:
            _watches[module] = Watch(module)


def prepare(session: Any) -> None:
    """Before the library hears of an update, where sites may still be added: watch what fully_shard has gathered by now."""
    if not session.ranks.sharded or session.__dict__.get("_prepared") == len(session.roots):
        return
    session.__dict__["_prepared"] = len(session.roots)
    for root in session.roots:
        for module in root.modules() if isinstance(root, torch.nn.Module) else ():
            if sharded.is_fully_shard(module):
                found = _watches.get(module)
                if found is None:
                    found = _watches[module] = Gathered(module)
                if isinstance(found, Gathered):
                    found.name(session)


def local_only(session: Any) -> None:
    """At the gate: gradients that are whole for a moment only are no part of what was reduced. Says so, so that nothing counts as
    missed."""
    sites = sorted({slot.view.site for found in list(_watches.values()) if isinstance(found, Gathered) for slot in found.slots
                    if slot.named(session)})
    _absent(session, abi.REDUCED_GRAD, sites)


def _absent(session: Any, boundary: int, sites: List[int]) -> None:
    if sites:
        table = (abi.View * len(sites))(*[abi.View.new(site=site, dtype=abi.F32) for site in sites])
        _native.call(_native.lib().fb_step_check, session.run, boundary, table, len(sites))


def unwatch() -> None:
    """Take every hook off."""
    for found in list(_watches.values()):
        found.leave()
    _watches.clear()


def next_micro(session: Any) -> None:
    """A forward begins that adds to the gradients of this update. Cost: one read of them, where they were averaged already."""
    for found in list(_watches.values()):
        if found.synced and found.update is session.update:
            found.next_micro(session)
    passed(session, session.update)


def passed(session: Any, update: Any) -> None:
    """The program goes on to its next forward without a vote on what was averaged in this update: those who vote on it are told."""
    reduced = session.ranks.sharded and update.backwards > 0
    if update.verdict is None and (reduced or any(found.synced and found.update is update for found in list(_watches.values()))):
        session.ranks.passed()


def withheld(session: Any) -> None:
    """An update was left out on all ranks, and its numbers are in what PowerSGD keeps from one reduction to the next: it begins
    anew, as it does by itself for a bucket that it has not seen. Otherwise every gradient after this one would be bad."""
    for module in list(_watches):
        for _, state in getattr(module, "_comm_hooks", ()):
            if type(state).__name__ == "PowerSGDState" and type(state).__module__.startswith("torch.distributed."):
                for kept in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
                    kept.clear()
                session.coverage.note("PowerSGD kept numbers of an update that was left out: its errors and factors began anew")


class Watch:
    """One DDP module. Hooks do nothing outside a backward of the program's own."""

    def __init__(self, module: Any) -> None:
        self.module = weakref.ref(module)
        self.slots = self._slots(module)
        self.update: Any = None
        self.backwards = -1  # number of the backward of the update that hooks have run in
        self.synced = False  # gradients were averaged in this update already
        self.mixed = False  # what accumulates now lies on top of what other ranks sent
        self.seen: Set[int] = set()
        self._clean = -1  # the micro-step at whose begin all that had been accumulated was finite
        self._elsewhere: List[Any] = []
        mine = weakref.ref(self)
        self._handles = [slot.parameter.register_post_accumulate_grad_hook(_hook(mine, index))
                         for index, slot in enumerate(self.slots)]

    def _slots(self, module: Any) -> "List[_Slot]":
        return [_Slot(p) for p in module.parameters() if p.requires_grad]

    def leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # ---- in backward -------------------------------------------------------------------------------------------------------------

    def ready(self, session: Any, index: int, parameter: torch.Tensor) -> None:
        """The gradient of a parameter was accumulated, and is this rank's own."""
        update = session.update
        if update is None or not update.open or update.verdict is not None:
            return
        if update is not self.update or update.backwards != self.backwards:
            self._begin(update)
        self.seen.add(index)
        gradient = parameter.grad
        if gradient is None or self.mixed:
            return
        slot = self.slots[index]
        if not slot.named(session):
            return  # no optimizer owns it
        if not slot.point(gradient):
            self._elsewhere.append((gradient, slot.view.site))
            return
        status = slot.check(session.run)
        if status != abi.OK:
            _native.raise_for(status, slot.error)

    def _begin(self, update: Any) -> None:
        """The first gradient of a backward."""
        if update is not self.update:
            self.update, self.synced, self.mixed, self._clean = update, False, False, -1
        self.backwards = update.backwards
        self.seen.clear()
        self._elsewhere.clear()
        if self.synced and self._clean != update.micro:
            self.mixed = True
        mine = weakref.ref(self)
        # Ours is queued before DDP's own callback, which waits for the reduction and writes the averages.
        torch.autograd.Variable._execution_engine.queue_callback(lambda: _after_backward(mine))

    def after_backward(self, session: Any) -> None:
        """All hooks have run; averages are not in place yet, unless gradients are views into the buckets."""
        module = self.module()
        if module is None or session.update is not self.update:
            return
        if not self.mixed:
            _absent(session, abi.LOCAL_GRAD, self._without(session))
        if self._elsewhere:
            self._look_elsewhere(session, module)
        # What DDP decided in its forward: False below no_sync.
        if self._syncs(module):
            self.synced = True
            session.ranks.averaged((id(self.update), self.backwards))
        if self.mixed:
            session.coverage.note("local gradients of a micro-step that follows an averaged one: they lie on top of what other "
                                  "ranks sent")

    def _look_elsewhere(self, session: Any, module: Any) -> None:
        gradients, self._elsewhere = self._elsewhere, []
        device = patch.optional("device", "device")
        if device is None or not self._stay(module):
            session.coverage.note("local gradients on a device that are reduced in place: which rank brought a bad one is told by "
                                  "its loss and by the replay")
            return
        device.look(session, abi.LOCAL_GRAD, gradients)

    def _without(self, session: Any) -> List[int]:
        """Sites of what has no local gradient in this backward."""
        return [slot.view.site for index, slot in enumerate(self.slots) if index not in self.seen and slot.named(session)]

    def _stay(self, module: Any) -> bool:
        """Are local gradients still there when all hooks have run?"""
        return not (module.gradient_as_bucket_view and self._syncs(module))

    def _syncs(self, module: Any) -> bool:
        return bool(getattr(module, "require_forward_param_sync", True))

    # ---- before a forward --------------------------------------------------------------------------------------------------------

    def next_micro(self, session: Any) -> None:
        """Is what lies in the gradients finite, so that what will be bad in them is ours?"""
        update = session.update
        if not self.synced or update is None or update is not self.update or self.mixed or update.verdict is not None:
            return
        first = ctypes.c_uint64()
        lib = _native.lib()
        for slot in self.slots:
            gradient = slot.parameter.grad
            if gradient is None or not slot.named(session):
                continue
            if not slot.point(gradient):
                return
            _native.call(lib.fb_scan_first, slot.pointer, ctypes.byref(first))
            if first.value != abi.NO_INDEX:
                return
        self._clean = update.micro


class Gathered(Watch):
    """The parameters that one module of fully_shard gathers. Their gradients are whole, and this rank's own, until they are
    reduced to parts, which is when the module has gone through backward. They have sites of their own, since they have another
    shape."""

    def __init__(self, module: Any) -> None:
        self._shards: List[Any] = []
        super().__init__(module)

    def _slots(self, module: Any) -> "List[_Slot]":
        out = []
        for shard in sharded.shards(module):
            whole = getattr(shard, "_unsharded_param", None)
            if isinstance(whole, torch.Tensor) and whole.requires_grad and not sharded.is_dtensor(whole):
                self._shards.append(weakref.ref(shard))
                out.append(_Slot(whole))
        return out

    def name(self, session: Any) -> None:
        """Sites of this session. Between steps."""
        for slot, reference in zip(self.slots, self._shards):
            shard = reference()
            place = session.names.places.get(id(shard.sharded_param)) if shard is not None else None
            if place is not None and place.gradient != abi.UINT32_MAX:
                slot.give(session, session.names.site(session.run, abi.ROLE_GRADIENT, place.module,
                                                      f"{shard._module_info.param_name}.grad", tuple(slot.parameter.shape)))

    def _without(self, session: Any) -> List[int]:
        parts = [session.names.places.get(id(shard.sharded_param)) for shard in (reference() for reference in self._shards)
                 if shard is not None]
        sites = [int(place.gradient) for place in parts if place is not None and place.gradient != abi.UINT32_MAX]
        own = {slot.view.site for slot in self.slots}
        return super()._without(session) + [site for site in sites if site not in own]

    def _stay(self, module: Any) -> bool:
        return False

    def _syncs(self, module: Any) -> bool:
        return False  # what was reduced lies elsewhere: nothing here is ever mixed with it

    def next_micro(self, session: Any) -> None:
        return


class _Slot:
    """A parameter, and the view of its gradient."""

    __slots__ = ("parameter", "view", "pointer", "error", "_error", "_address", "_dtype", "_kept", "_session")

    def __init__(self, parameter: torch.Tensor) -> None:
        self.parameter = parameter
        self.view = abi.View.new(site=abi.UINT32_MAX)
        self.pointer = ctypes.byref(self.view)
        self.error = abi.Error()
        self._error = ctypes.byref(self.error)
        self._address, self._dtype, self._kept, self._session = 0, None, None, 0

    def named(self, session: Any) -> bool:
        """Does this session have a site for it? It has none for what no optimizer owns."""
        if self._session == id(session):
            return True
        place = session.names.places.get(id(self.parameter))
        if place is None or place.gradient == abi.UINT32_MAX:
            return False
        self.give(session, int(place.gradient))
        return True

    def give(self, session: Any, site: int) -> None:
        self.view.site, self._session, self._address = site, id(session), 0

    def point(self, gradient: torch.Tensor) -> bool:
        """Have the view show a gradient. False: it is not in host memory."""
        if gradient.data_ptr() == self._address and gradient.dtype is self._dtype and gradient.is_contiguous() \
                and gradient.numel() == self.view.count and not gradient.is_sparse:
            return True
        self._address, self._dtype = 0, None
        if elsewhere(gradient):
            return False
        self._kept = views.fill(self.view, gradient)
        if self._kept is None:
            return False
        memory, layout = self._kept
        if layout is None and memory is gradient:
            self._address, self._dtype, self._kept = gradient.data_ptr(), gradient.dtype, None
        return True

    def check(self, run: Any) -> int:
        return int(_native.lib().fb_step_check(run, abi.LOCAL_GRAD, self.pointer, 1, self._error))


def elsewhere(tensor: torch.Tensor) -> bool:
    """Not in host memory, or to be treated so."""
    return tensor.device.type != "cpu" or views.ELSEWHERE


def _hook(mine: "weakref.ref[Watch]", index: int) -> Callable[[torch.Tensor], None]:
    def ready(parameter: torch.Tensor) -> None:
        session = sessions.current()
        if session is not None and session.in_backward and not session.dead:
            _ready(mine, session, index, parameter)

    return ready


@patch.guest("ddp")
def _ready(mine: "weakref.ref[Watch]", session: Any, index: int, parameter: torch.Tensor) -> None:
    found = mine()
    if found is not None:
        with torch.no_grad():
            found.ready(session, index, parameter)


@patch.guest("ddp")
def _after_backward(mine: "weakref.ref[Watch]") -> None:
    found, session = mine(), sessions.current()
    if found is not None and session is not None and not session.dead:
        found.after_backward(session)
