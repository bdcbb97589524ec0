"""Hugging Face Trainer.

    from firstbad.integrations.transformers import FirstbadCallback
    trainer = Trainer(..., callbacks=[FirstbadCallback()])

The guard is the one of `firstbad run`, in place before the first update: a bad update is withheld as a whole, located, and told
once. The callback adds what only the Trainer knows: its own number of the step, and that a loss in its log is not the loss. With
`logging_nan_inf_filter`, which is on by default, a step whose loss is NaN is logged with the mean of the others, so that a fault
reads as `loss: 0.0`.
"""
from __future__ import annotations

import sys
from typing import Any, Optional

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ._session import Watch

__all__ = ["FirstbadCallback"]

KEY = "firstbad_skipped"


class FirstbadCallback(TrainerCallback):  # type: ignore[misc]
    """See the head of this file; for the arguments _session.Watch. Make it before training, on every rank.

    Raises firstbad.Halted out of `trainer.train()` where the run is halted; it knows step, rank, module, operator, line
    and cause. `state.log_history` has `firstbad_skipped` where updates were withheld since the entry before.
    """

    def __init__(self, on_bad: Optional[str] = None, max_skips: Optional[int] = None, run_dir: Optional[str] = None,
                 run_id: Optional[str] = None) -> None:
        self.watch = Watch(on_bad, max_skips, run_dir, run_id)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.watch.begin()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.watch.number(state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.watch.halted is not None:  # somebody caught it: no update is applied any more, so there is nothing to train
            control.should_training_stop = True

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None,
               **kwargs: Any) -> None:
        if not logs or "loss" not in logs:
            return
        skipped = self.watch.skipped()
        if not skipped:
            return
        logs[KEY] = skipped
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1][KEY] = skipped
        if args.logging_nan_inf_filter and state.is_world_process_zero:
            were = "was" if skipped == 1 else "were"
            sys.stderr.write(f"firstbad: the loss that the Trainer logs at step {state.global_step} is not that of all its updates: "
                             f"{skipped} {were} withheld, and logging_nan_inf_filter takes a loss that is not finite out of the "
                             f"mean\n")

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        halted = self.watch.halted
        if halted is not None:
            raise halted
