"""A session with a real run of the library behind it, for tests of one part: what firstbad.pytorch.session has that the parts
read."""
from __future__ import annotations

import ctypes
import json
import os
import subprocess
import threading
from typing import Any, Dict, List, Optional

import torch

from firstbad import _abi as abi
from firstbad import _native
from firstbad.pytorch import inputs, loader, loads, patch, saves, state
from firstbad.pytorch import registry
from firstbad.pytorch.coverage import Coverage
from firstbad.pytorch.names import Names
from firstbad.pytorch.update import Loss, Update


class FakeSession:
    """One process, one run. `begin` and `end` make updates; the parts are called as the session calls them."""

    def __init__(self, folder: Any, model: Optional[torch.nn.Module] = None, optimizer: Any = None, on_bad: str = "skip") -> None:
        self.run = ctypes.c_void_p()
        config = abi.RunConfig.new(dir=os.fsencode(str(folder)), run_id="r", max_skips=100,
                                   on_bad={"skip": abi.ON_BAD_SKIP, "observe": abi.ON_BAD_OBSERVE}[on_bad])
        _native.call(_native.lib().fb_run_open_alone, ctypes.byref(self.run), ctypes.byref(config))
        self.dir = str(folder)
        self.settings: Dict[str, Any] = {"on_bad": on_bad}
        self.rank, self.number, self.first_step, self.dead = 0, 0, 0, False
        self.thread = threading.get_ident()
        self.checkpoint_parent: Optional[int] = None
        self.update: Optional[Update] = None
        self.names, self.buffers, self.coverage = Names(), state.Buffers(), Coverage()
        self.coverage.open(self.run)
        self.faults: List[Any] = []
        if model is not None:
            self.names.add_scope(model)
            self.names.refresh()
            self.names.add_sites(self.run, list(model.parameters()))
        if optimizer is not None:
            registry.optimizers.add(optimizer)
        self.inputs = inputs.InputGate(self)

    def begin(self, micro: int = 0) -> Update:
        self.update = Update(self.number, micro=micro)
        return self.update

    def need_step(self) -> Update:
        assert self.update is not None
        if not self.update.open:
            self.inputs.before_step()
            step = abi.Step.new(step=self.number, micro_steps=0)
            _native.call(_native.lib().fb_step_begin, self.run, ctypes.byref(step))
            self.update.open = True
            for index in range(1, self.update.micro + 1):
                _native.call(_native.lib().fb_step_micro, self.run, index)
        return self.update

    def input_fault(self, evidence: Any) -> None:
        self.faults.append(evidence)

    def loss(self, value: Any) -> None:
        """A loss was handed to backward."""
        update = self.need_step()
        tensor = torch.as_tensor(float(value))
        update.losses.append(Loss(tensor, update.micro, bool(torch.isfinite(tensor)), False))
        self.inputs.in_step()

    def vote(self) -> abi.Verdict:
        verdict = abi.Verdict.new()
        _native.call(_native.lib().fb_step_vote_alone, self.run, ctypes.byref(verdict))
        return verdict

    def end(self, healthy: bool = True) -> abi.Verdict:
        """Vote, apply where it is let through, end."""
        self.need_step()
        verdict = self.vote()
        if verdict.action == abi.PROCEED:
            _native.call(_native.lib().fb_step_apply, self.run)
        result = abi.StepResult.new()
        _native.call(_native.lib().fb_step_end, self.run, ctypes.byref(result))
        self.update = None
        self.number += 1
        self.inputs.forget(healthy)
        return verdict

    def between(self) -> bool:
        return bool(self.run.value) and (self.update is None or not self.update.open)

    def close(self) -> None:
        if self.run.value:
            saves.closing(self)
            _native.lib().fb_run_close(self.run)
            self.run = ctypes.c_void_p()
        self.dead = True

    def records(self) -> List[Dict[str, Any]]:
        """The ledger, through the tool."""
        tool = os.path.join(os.environ["FIRSTBAD_BUILD"], "firstbad")
        done = subprocess.run([tool, "export", "--jsonl", "-", "--dir", self.dir, "r"], stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def findings(self) -> List[Dict[str, Any]]:
        return [row for row in self.records() if row.get("table") in ("findings", "finding")]


def fresh() -> patch.Patches:
    """Nothing is remembered from another test. The caller installs what it needs, and uninstalls."""
    patch.reset()
    loader.reset()
    loads.reset()
    saves.reset()
    return patch.Patches()
