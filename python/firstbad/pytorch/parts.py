"""The parts of a session that may fail by themselves: each call is a guest of its own, so that one that breaks is off and the
others go on."""
from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from . import patch
from .calls import Snapshot
from .update import Update


class Parts:
    """Inputs, buffers, the recorder and the hooks of DDP, as the session calls them."""

    def __init__(self, session: Any) -> None:
        self.session = session

    # Inputs.

    @patch.guest("inputs", (None, None))
    def enter_inputs(self, root: Any, name: str, args: Any, kwargs: Any) -> Tuple[Optional[int], Any]:
        """(fingerprint, samples) of the batch."""
        if self.session.inputs is None:
            return None, None
        result: Tuple[Optional[int], Any] = self.session.inputs.enter(root, name, args, kwargs)
        return result

    @patch.guest("inputs")
    def forget_inputs(self, healthy: Optional[bool]) -> None:
        if self.session.inputs is not None:
            self.session.inputs.forget(healthy)

    # Buffers.

    @patch.guest("buffers", {})
    def enter_buffers(self, root: Any, update: Update) -> Snapshot:
        if not isinstance(root, torch.nn.Module):
            return {}
        out: Snapshot = self.session.buffers.enter(root, update.calls.before() if update.backwards else {})
        return out

    @patch.guest("buffers")
    def returned(self, update: Update, outputs: Any) -> None:
        """A root returned: from here on it is known when its call is over."""
        if update.backwards == 0 and update.calls.held:
            update.calls.held[-1].returned(outputs)

    @patch.guest("buffers")
    def learn_buffers(self, update: Update) -> None:
        session = self.session
        roots = [root for root in session.roots if id(root) in update.roots and isinstance(root, torch.nn.Module)]
        if session.buffers.learn(roots, update.calls.before()) and update.skipped:
            session.coverage.note("buffers above 64 MiB that forward changed were not put back in the first updates")

    # The recorder.

    @patch.guest("tail")
    def record_enter(self, root: Any, name: str, args: Any, kwargs: Any, kept: Snapshot) -> None:
        if self.session.recorder is not None:
            self.session.recorder.root_enter(root, name, args, kwargs, None, [(live, copy) for live, copy, _ in kept.values()])

    @patch.guest("tail")
    def record_exit(self, outputs: Any) -> None:
        if self.session.recorder is not None:
            self.session.recorder.root_exit(outputs)

    @patch.guest("tail")
    def record_backward(self, tensors: Any, grad_tensors: Any, kwargs: Dict[str, Any], losses: Sequence[Any]) -> None:
        if self.session.recorder is not None:
            self.session.recorder.backward_enter(tensors, grad_tensors, kwargs, list(losses))

    @patch.guest("tail")
    def record_backward_exit(self) -> None:
        if self.session.recorder is not None:
            self.session.recorder.backward_exit()

    @patch.guest("tail")
    def cleared(self) -> None:
        if self.session.recorder is not None:
            self.session.recorder.cleared()

    @patch.guest("tail")
    def drop(self) -> None:
        if self.session.recorder is not None:
            self.session.recorder.drop()

    # Ranks.

    @patch.guest("ddp")
    def watch(self, root: Any) -> None:
        """A root was met, and there may be other ranks."""
        ddp = patch.optional("ddp", "ddp")
        if ddp is not None:
            ddp.watch(root)

    def _ddp(self) -> Any:
        return sys.modules.get(f"{__package__}.ddp")

    @patch.guest("ddp")
    def prepare(self) -> None:
        """An update is about to begin in the library."""
        if self._ddp() is not None:
            self._ddp().prepare(self.session)

    @patch.guest("ddp")
    def next_micro(self) -> None:
        if self._ddp() is not None:
            self._ddp().next_micro(self.session)

    @patch.guest("ddp")
    def passed(self, update: Update) -> None:
        """An update is given up."""
        if self._ddp() is not None and self.session.ranks is not None:
            self._ddp().passed(self.session, update)

    @patch.guest("ranks")
    def lost(self, error: Optional[BaseException]) -> None:
        """The program raised this. Did a rank not answer?"""
        from . import ranks

        ranks.lost(self.session, error)

    def ending(self) -> None:
        """The session is closed."""
        postmortem = patch.optional("postmortem", "postmortem")
        if postmortem is not None:
            postmortem.at_end(self.session)

    def names_of_parts(self) -> List[str]:
        """Parts that are not there, and why, for coverage."""
        out = []
        for name in ("tail", "inputs", "locate", "buffers"):
            if not patch.usable(name):
                why = patch.broken().get(name)
                out.append(f"{name}: failed: {why}" if why else f"{name}: switched off by FIRSTBAD_OFF")
        return out
