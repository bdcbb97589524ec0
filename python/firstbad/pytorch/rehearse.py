"""A replay without a tape, before any with one: does it show the finding at all, in which of several losses, and is it the run?"""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from . import smaller
from .locator import Finding, Group, Locator
from .program import Program
from .replay import Change, Names, Replay, Unsupported


class Rehearsal:
    """program, names: of the update. losses: its losses as the run had them; () where nobody kept them.

    changed: (leaf) -> was its gradient changed after backward, by code that no replay runs?
    loose: (leaf, module, name) of leaves that no root has, and whose gradients the program itself makes of others.

    again: the Replay to locate with. finding: under the name that the tape will hear. fill: what fresh memory has to hold.
    differences: what makes a replay differ from the run, one sentence each.
    """

    def __init__(self, program: Program, names: Names, ranks: Group, finding: Finding, losses: Sequence[torch.Tensor] = (),
                 loose: Sequence[Tuple[torch.Tensor, str, str]] = (), changed: Callable[[Any], bool] = lambda leaf: False) -> None:
        self.loose = list(loose)
        self.changed = changed
        self.program, self.ranks, self.told = program, ranks, list(losses)
        self.fill = 0.0
        self.differences: List[str] = []
        alone = ranks.world > 1 and ranks.max_ints is None
        if alone and finding.boundary == abi.REDUCED_GRAD:
            finding = finding._replace(boundary=abi.LOCAL_GRAD)
        boundary = abi.REDUCED_GRAD if finding.boundary == abi.REDUCED_GRAD else abi.LOCAL_GRAD
        reduce = Reduce(ranks) if boundary == abi.REDUCED_GRAD and ranks.world > 1 else None
        if reduce is not None:
            self.differences.append("gradients were averaged over the ranks one by one, not in buckets")
        self.again = Replay(program, names, boundary, reduce, micro=finding.micro)
        self.finding = self._as_named(finding, names)

    def _as_named(self, finding: Finding, names: Names) -> Finding:
        """The finding under the name that the tape will hear. Where the two differ, what is bad tells which tensor is meant."""
        if finding.boundary in (abi.LOCAL_GRAD, abi.REDUCED_GRAD):
            told = {(module, f"{name}.grad") for _, module, name in names.gradients}
            if (finding.module, finding.tensor) not in told:
                for leaf, module, name in names.gradients:
                    if f"{name}.grad" == finding.tensor and is_bad(leaf.grad):
                        return finding._replace(module=module)
        if finding.boundary == abi.INPUT:
            mine = [e for e in self.program.externals if e.batch and e.micro == finding.micro]
            if finding.kind in (abi.KIND_OUT_OF_RANGE, abi.KIND_ALL_IGNORED):
                return finding._replace(boundary=abi.LOSS, module="", tensor="loss", kind=0)  # all that a replay can see of it
            if not any(e.name == finding.tensor for e in mine):
                bad = [e for e in mine if is_bad(e.tensor)]
                for e in [e for e in bad if e.name.endswith(finding.tensor)] or bad[:1]:
                    e.name = finding.tensor
            return finding._replace(module="batch")
        return finding

    def rehearse(self) -> bool:
        """One replay without a tape: does it show the finding, in which of several losses, and does memory that nobody wrote
        decide?"""
        again, finding = self.again, self.finding
        shown = self._shows(again, finding, 0.0)
        if shown is False and self._stand_in(again, finding):
            shown = self._shows(again, finding, 0.0)
        if shown is None or shown:
            return bool(shown)
        if self._shows(again, finding, float("nan")):
            self.fill = float("nan")
            self.differences.append("memory that nobody had written was filled with NaN, as it may have held anything in the run")
            return True
        self._unfaithful(again, finding)
        return False

    def rows_matter(self) -> bool:
        """Does it depend on which rows are in the batch? Where the first row alone shows it, and the last alone as well, it is not
        the samples, or the replay cannot follow what belongs to a row. The same on all ranks."""
        batch = smaller.batch_of(self.program, self.finding.micro)
        counts = [batch.rows, -batch.rows] if self.ranks.max_ints is None else list(self.ranks.max_ints([batch.rows, -batch.rows]))
        if counts[0] < 2 or -counts[1] < 2:
            return False
        loss_at = self.again.loss_at
        shown = [self._shows(self.again, self.finding, self.fill, smaller.change_of(self.program, batch, [row], None))
                 for row in (0, batch.rows - 1)]
        self.again.loss_at = loss_at
        return not all(shown)

    def _stand_in(self, again: Replay, finding: Finding) -> bool:
        """A master copy in FP32 has a gradient that the program copied from that of a parameter: the one that is bad at the same
        elements stands for it, under both names. The same on all ranks."""
        names, found = again.names, -1
        if finding.boundary in (abi.LOCAL_GRAD, abi.REDUCED_GRAD):
            wanted = next((leaf.grad for leaf, module, name in self.loose
                           if (module, f"{name}.grad") == (finding.module, finding.tensor) and leaf.grad is not None), None)
            for i, (_, gradient) in enumerate(again.gradients):
                if wanted is not None and gradient is not None and wanted.numel() == gradient.numel() and is_bad(gradient) and \
                        torch.equal(torch.isfinite(wanted.reshape(-1)), torch.isfinite(gradient.reshape(-1))):
                    found = i
                    break
        if self.ranks.max_ints is not None:
            found = int(self.ranks.max_ints([found])[0])
        if found < 0:
            return False
        leaf = again.gradients[found][0]
        again.names = names._replace(gradients=[*names.gradients, (leaf, finding.module, finding.tensor[:-len(".grad")])])
        return True

    def _unfaithful(self, again: Replay, finding: Finding) -> None:
        """It does not show: is a replay the run at all? A transient fault may be claimed only where it is."""
        if any(self.changed(leaf) for leaf, _, _ in again.names.gradients):
            self.differences.append("the program changed gradients after backward had made them, which no replay does")
        probe_ = Locator(again, self.program, self.ranks, finding.micro)
        probe_.run(finding, parts=abi.LOCATE_REPLAY & ~abi.LOCATE_OTHER_RANK, times=1, precision="fp32")
        if probe_.unwritten:
            self.differences.append("memory that nobody had written held other numbers")
        told = self.told
        if len(told) == len(again.losses):
            for i, (was, now) in enumerate(zip(told, again.losses)):
                if not _same(was, now):
                    self.differences.append(f"loss {i} came to {_number(now)} in a replay, and to {_number(was)} in the run")
                    return
        if self.ranks.world == 1:
            for leaf, module, name in again.names.gradients:
                now_ = next((g for known, g in again.gradients if known is leaf), None)
                if leaf.grad is not None and now_ is not None and not is_bad(leaf.grad) and not _same(leaf.grad, now_):
                    self.differences.append(f"the gradient of {module}.{name} came to other numbers in a replay")
                    return

    def _shows(self, again: Replay, finding: Finding, fill: float, change: Change = Change()) -> Optional[bool]:
        """Is the finding bad in a replay with this in fresh memory? The same on all ranks; None: it cannot be replayed."""
        answer = 0
        try:
            again.loss_at = -1
            again.run(change=change, fill=fill)
            if self.ranks.rank == finding.rank:
                answer = int(self._bad_in(again, finding, change))
        except (MemoryError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError):
            answer = 2  # the library meets the same, and says what it was
            again.lost()
        if self.ranks.max_ints is not None:
            answer = int(self.ranks.max_ints([answer])[0])
        return None if answer == 2 else bool(answer)

    def _bad_in(self, again: Replay, finding: Finding, change: Change) -> bool:
        if finding.boundary in (abi.LOSS, abi.FORWARD):
            at = 0
            for step in self.program.steps:
                count = len(getattr(step, "losses", ()))
                for i in range(at, at + count):
                    if getattr(step, "micro", -1) == finding.micro and is_bad(again.losses[i]):
                        again.loss_at = i
                        return True
                at += count
            return False
        if finding.boundary in (abi.LOCAL_GRAD, abi.REDUCED_GRAD):
            return any(is_bad(gradient) for leaf, gradient in again.gradients for known, module, name in again.names.gradients
                       if known is leaf and (module, f"{name}.grad") == (finding.module, finding.tensor))
        if finding.boundary == abi.INPUT:
            return any(e.name == finding.tensor and is_bad(change.externals.get(number, e.tensor))
                       for number, e in enumerate(self.program.externals) if e.batch and e.micro == finding.micro)
        return True  # of the state: it is there before the step


class Reduce:
    """Averages a gradient over the ranks, as DDP would have. Ranks that failed before it tell the others, who would wait."""

    def __init__(self, ranks: Group) -> None:
        self.ranks, self.met = ranks, False

    def begin(self) -> None:
        self.met = False

    def __call__(self, leaf: torch.Tensor) -> None:
        import torch.distributed as dist
        if not self.met:
            self.met = True
            if self.ranks.max_ints is not None and int(self.ranks.max_ints([0])[0]):
                raise Unsupported("another rank could not run its replay")
        assert leaf.grad is not None
        gradient = leaf.grad.to_local() if hasattr(leaf.grad, "to_local") else leaf.grad
        dist.all_reduce(gradient, group=self.ranks.group)
        gradient.div_(self.ranks.world)

    def lost(self) -> None:
        """This rank's replay failed. Where the others have not met it yet they hear of it here."""
        if not self.met and self.ranks.max_ints is not None:
            self.met = True
            self.ranks.max_ints([1])


def is_bad(tensor: Optional[torch.Tensor]) -> bool:
    """Something in it is not finite. For choosing between replays only: what counts as a finding is the library's."""
    if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    data = tensor._values() if tensor.layout == torch.sparse_coo else tensor
    with torch.no_grad():
        return not bool(torch.isfinite(data.to_local() if hasattr(data, "to_local") else data).all())


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same numbers, NaN in the same places; what cannot be compared counts as the same."""
    try:
        a, b = (a.detach(), b.detach()) if a.dtype == b.dtype else (a.detach().double(), b.detach().double())
        return bool(torch.equal(torch.isnan(a), torch.isnan(b)) and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))
    except (RuntimeError, TypeError, NotImplementedError):
        return True


def _number(tensor: torch.Tensor) -> str:
    return f"{tensor.item():.9g}" if tensor.numel() == 1 and not tensor.is_complex() else "other numbers"
