"""GradScaler: an update that is withheld is withheld inside the scaler, on all ranks, so that its scale moves alike everywhere.

The scaler's own skip goes by what this rank found. Ours goes by the verdict: `step` is not called, every found_inf is set to
exactly 1 and the optimizer marked as stepped, after which `update` backs off as after a skip of its own (or keeps the scale, where
the verdict says so).
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch

from .. import _abi as abi
from . import patch
from .registry import scalers as known_scalers
from .since import OptState
from .update import Update


class Scalers:
    """What a session does around GradScaler. All methods take the scaler first."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._on_device: Dict[int, float] = {}  # id(scaler) -> scale as it was last read, of scalers on a device

    def scale_now(self) -> Optional[float]:
        """The scale of the first scaler in use, None without one, or where it lies on a device and was not read yet."""
        for scaler in known_scalers.alive():
            if not getattr(scaler, "_enabled", False):
                continue
            scale = scaler._scale
            if scale is None:
                return float(scaler._init_scale)
            if scale.device.type == "cpu":
                return float(scale.item())
            return self._on_device.get(id(scaler))
        return None

    def inverse_of(self, optimizer: Any) -> float:
        """What this optimizer's gradients have to be multiplied with: 1 where they are unscaled."""
        for scaler in known_scalers.alive():
            kept = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer))
            if kept is not None and scaler._scale is not None and not kept["found_inf_per_device"]:
                return 1.0 / float(scaler._scale.item())
        return 1.0

    # ---- the methods -------------------------------------------------------------------------------------------------------------

    def scaled(self, scaler: Any, losses: Any, scaled: Any) -> None:
        """scale(losses) returned `scaled`: remember which loss is which."""
        session = self.session
        update = session.update if session.update is not None else session._begin()
        update.scaler_used = True
        for loss, product in zip(_tensors(losses), _tensors(scaled)):
            update.scaled[id(product)] = (product, loss)

    def before_unscale(self, scaler: Any, optimizer: Any) -> None:
        """unscale_ is about to divide the gradients. Raises Halted."""
        update = self.session.update
        if update is None:
            return
        if update.clipped_scaled:
            self.session.coverage.note("gradients were clipped before they were unscaled: the limit of the clipping is multiplied "
                                       "by the loss scale")
        self.session.gate("unscale_", optimizer)

    def before_step(self, scaler: Any, optimizer: Any) -> bool:
        """True: the update is withheld, step is not to be called. Raises Halted."""
        session = self.session
        if session.update is not None and (session.update.scaler_updated or id(optimizer) in session.update.stepped):
            session.end_update()
        update = session.need_step()
        update.scaler_used = True
        if update.losses and not update.scaled:
            session.coverage.note("a GradScaler stepped on a loss that it did not scale")
        session.gate("scaler.step", optimizer)
        return bool(session.update is not None and session.update.skipped)

    def withhold(self, scaler: Any, optimizer: Any) -> bool:
        """Leave the scaler as after a skip of its own. False: it is misused (stepped twice), and shall say so itself."""
        kept = scaler._per_optimizer_states[id(optimizer)]
        if kept["stage"] is OptState.STEPPED or scaler._scale is None:
            return False
        found = kept["found_inf_per_device"]
        if found:
            for value in found.values():
                value.fill_(1.0)
        else:
            found[scaler._scale.device] = torch.full((), 1.0, dtype=torch.float32, device=scaler._scale.device)
        kept["stage"] = OptState.STEPPED
        update: Update = self.session.update
        update.stepped.append(id(optimizer))
        return True

    def before_update(self, scaler: Any) -> Optional[Tuple[Any, Any]]:
        """(scale, growth tracker) that are to stay as they are; None where the scale moves by its own rules. A found_inf that was
        summed over devices (2.0) would be another number than 1 to an optimizer that gets it: it is made 1."""
        for kept in scaler._per_optimizer_states.values():
            for value in kept["found_inf_per_device"].values():
                if value.device.type == "cpu" and value.numel() == 1 and value.item() not in (0.0, 1.0):
                    value.fill_(1.0)
        update: Optional[Update] = self.session.update
        if update is None or not update.skipped or update.verdict is None or update.verdict.action != abi.SKIP_FREEZE:
            return None
        if scaler._scale is None or scaler._growth_tracker is None:
            return None
        return scaler._scale.clone(), scaler._growth_tracker.clone()

    def after_update(self, scaler: Any, frozen: Optional[Tuple[Any, Any]]) -> None:
        """update returned: the update of the state is over as well. Raises Halted for one that was held back."""
        if frozen is not None:
            scaler._scale.copy_(frozen[0])
            scaler._growth_tracker.copy_(frozen[1])
        session = self.session
        if session.update is not None and session.update.verdict is not None:
            session.update.scaler_updated = True
            session.end_update()
        if scaler._scale is not None and scaler._scale.device.type != "cpu" and patch.usable("device"):
            self._read_late(scaler)

    def _read_late(self, scaler: Any) -> None:
        """The scale of a scaler on a device, without waiting: its copy is read at the next update."""
        device = patch.optional("device", "device")
        read = getattr(device, "late_scale", None)
        if read is not None:
            value = read(scaler)
            if value is not None:
                self._on_device[id(scaler)] = value

    def any_unscaled(self) -> bool:
        """Has any scaler in use unscaled gradients of this update already?"""
        return any(kept["stage"] is not OptState.READY for scaler in known_scalers.alive() if getattr(scaler, "_enabled", False)
                   for kept in scaler._per_optimizer_states.values())


def _tensors(tree: Any) -> List[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [tensor for part in tree for tensor in _tensors(part)]
    return []
