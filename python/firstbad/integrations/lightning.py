"""Lightning.

    from firstbad.integrations.lightning import FirstbadCallback
    trainer = lightning.Trainer(callbacks=[FirstbadCallback()])

The guard is the one of `firstbad run`, in place before the first update; it works with automatic and manual optimization. The
callback adds Lightning's own number of the step, and logs `firstbad_skipped`, the number of updates that were withheld so far,
with each of them. Works with the packages `lightning` and `pytorch_lightning`, whichever is imported.
"""
from __future__ import annotations

import importlib
import sys
from typing import Any, Optional

from ._session import Watch

__all__ = ["FirstbadCallback"]


def _base() -> Any:
    """Callback of the package that the program uses: the two are not the same class."""
    for name in ("lightning", "pytorch_lightning"):
        if name in sys.modules:
            return importlib.import_module(name + (".pytorch" if name == "lightning" else "")).Callback
    try:
        return importlib.import_module("lightning.pytorch").Callback
    except ImportError:
        return importlib.import_module("pytorch_lightning").Callback


class FirstbadCallback(_base()):  # type: ignore[misc]
    """See the head of this file; for the arguments _session.Watch. Make it before training, on every rank.

    Raises firstbad.Halted out of `trainer.fit()` where the run is halted; it knows step, rank, module, operator, line and cause.
    """

    def __init__(self, on_bad: Optional[str] = None, max_skips: Optional[int] = None, run_dir: Optional[str] = None,
                 run_id: Optional[str] = None) -> None:
        super().__init__()
        self.watch = Watch(on_bad, max_skips, run_dir, run_id)
        self.total = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not pl_module.automatic_optimization:
            return  # global_step counts optimizer steps there, of which an update may have several
        if len(trainer.optimizers) == 1 and batch_idx % trainer.accumulate_grad_batches == 0:
            self.watch.number(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        skipped = self.watch.skipped()
        if skipped:
            self.total += skipped
            pl_module.log("firstbad_skipped", float(self.total), rank_zero_only=True)
        if self.watch.halted is not None:  # somebody caught it: no update is applied any more, so there is nothing to train
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        halted = self.watch.halted
        if halted is not None:
            raise halted
