"""Which rank brought it: the local gradients of DDP, looked at before they are averaged.

After the reduction every rank has the same gradient, and a NaN of one is a NaN of all. A hook on each parameter runs after its gradient
was accumulated and before DDP is told that it is ready, so what it sees is this rank's own, also where gradients are views into the
buckets that are reduced in place. Each is looked at there and then, still in the cache: 17 M elements in 150 parameters take 1.4 ms
that way and 5 ms after backward. A communication hook is not used: DDP takes one, and it belongs to the program.

Local findings come earlier in the order than reduced ones, so the vote names the rank that has one.
"""
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, List, Optional, Set

import torch

from .. import _abi as abi
from .. import _native
from . import patch, session as sessions, sharded, views

# Nothing of ours lies on a module: a model is pickled and copied without us.
_watches: "weakref.WeakKeyDictionary[torch.nn.Module, Watch]" = weakref.WeakKeyDictionary()


def watch(root: torch.nn.Module) -> None:
    """Watch every DDP module of a root. Nothing happens for one that is watched already. Cost: a hook for each parameter."""
    for module in list(root.modules()):
        if sharded.is_ddp(module) and module not in _watches:
            _watches[module] = Watch(module)


def unwatch() -> None:
    """Take every hook off."""
    for found in list(_watches.values()):
        found.leave()
    _watches.clear()


def next_micro(session: Any) -> None:
    """A forward begins that adds to the gradients of this update. Cost: one read of them, where they were averaged already."""
    for found in list(_watches.values()):
        found.next_micro(session)


class Watch:
    """One DDP module. Hooks do nothing outside a backward of the program's own."""

    def __init__(self, module: Any) -> None:
        self.module = weakref.ref(module)
        self.slots = [_Slot(p) for p in module.parameters() if p.requires_grad]
        self.update: Any = None
        self.backwards = -1  # number of the backward of the update that hooks have run in
        self.synced = False  # gradients were averaged in this update already
        self.mixed = False  # what accumulates now lies on top of what other ranks sent
        self.seen: Set[int] = set()
        self._clean = -1  # the micro-step at whose begin all that had been accumulated was finite
        self._elsewhere: List[Any] = []
        mine = weakref.ref(self)
        self._handles = [slot.parameter.register_post_accumulate_grad_hook(_hook(mine, index)) for index, slot in enumerate(self.slots)]

    def leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # ---- in backward -------------------------------------------------------------------------------------------------------------------

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
        if not slot.point(session, gradient):
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
            absent = [slot.site_of(session) for index, slot in enumerate(self.slots) if index not in self.seen]
            table = (abi.View * len(absent))(*[abi.View.new(site=site) for site in absent if site is not None])
            if absent and all(site is not None for site in absent):
                _native.call(_native.lib().fb_step_check, session.run, abi.LOCAL_GRAD, table, len(absent))
        if self._elsewhere:
            self._look_elsewhere(session, module)
        # What DDP decided in its forward: False below no_sync.
        self.synced = self.synced or bool(getattr(module, "require_forward_param_sync", True))
        if self.mixed:
            session.coverage.note("local gradients of a micro-step that follows an averaged one: they lie on top of what other ranks sent")

    def _look_elsewhere(self, session: Any, module: Any) -> None:
        gradients, self._elsewhere = self._elsewhere, []
        device = patch.optional("device", "device")
        if device is None or (module.gradient_as_bucket_view and self._syncs(module)):
            session.coverage.note("local gradients on a device that are views into the buckets of DDP: which rank brought a bad one is told "
                                  "by its loss and by the replay")
            return
        device.look(session, abi.LOCAL_GRAD, gradients)

    @staticmethod
    def _syncs(module: Any) -> bool:
        return bool(getattr(module, "require_forward_param_sync", True))

    # ---- before a forward ---------------------------------------------------------------------------------------------------------------

    def next_micro(self, session: Any) -> None:
        """Is what lies in the gradients finite, so that what will be bad in them is ours?"""
        update = session.update
        if not self.synced or update is None or update is not self.update or self.mixed or update.verdict is not None:
            return
        first = ctypes.c_uint64()
        lib = _native.lib()
        for slot in self.slots:
            gradient = slot.parameter.grad
            if gradient is None:
                continue
            if not slot.point(session, gradient):
                return
            _native.call(lib.fb_scan_first, slot.pointer, ctypes.byref(first))
            if first.value != abi.NO_INDEX:
                return
        self._clean = update.micro


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

    def site_of(self, session: Any) -> Optional[int]:
        place = session.names.places.get(id(self.parameter))
        return None if place is None or place.gradient == abi.UINT32_MAX else int(place.gradient)

    def point(self, session: Any, gradient: torch.Tensor) -> bool:
        """Have the view show a gradient. False: it is not in host memory, or has no name."""
        if self._session != id(session):
            site = self.site_of(session)
            if site is None:
                return False
            self.view.site, self._session, self._address = site, id(session), 0
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
    """Not in host memory, or to be treated so (FIRSTBAD_DEVICE_PATH)."""
    if tensor.device.type != "cpu":
        return True
    from . import device

    return device.FORCED


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
