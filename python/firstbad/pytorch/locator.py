"""fb_locate_run over one recorded update: the callbacks that the library calls, and what it concluded.

The library decides what to replay; this replays. A callback never lets an exception go into C: failures become statuses, and what
the user must see (KeyboardInterrupt) is raised again when the library has returned.
"""
from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _native
from . import again, smaller
from .program import Program, RootCall
from .replay import Change, Replay, Unsupported
from .replay_update import UpdateReplay
from .tape import Kept, TapeError

FOUND = {abi.LOCATED_NOTHING: "nothing", abi.LOCATED_OPERATOR: "operator", abi.LOCATED_SET: "set", abi.LOCATED_INTERVAL: "interval",
         abi.LOCATED_ENTRY: "entry", abi.LOCATED_NOT_REPRODUCED: "not_reproduced", abi.LOCATED_NOT_STEADY: "not_steady",
         abi.LOCATED_UNDECIDED: "undecided"}


class Finding(NamedTuple):
    """What opened the case; equal on all ranks."""

    rank: int
    boundary: int
    micro: int
    kind: int
    module: str
    tensor: str
    injected: bool = False


class Group(NamedTuple):
    """The ranks. max_ints(values) -> each replaced by the largest over all; group: of torch.distributed, for batches; None:
    none."""

    rank: int = 0
    world: int = 1
    max_ints: Optional[Callable[[Sequence[int]], Sequence[int]]] = None
    group: Any = None


class Located:
    """What was concluded. result: fb_locate_result, its own copy. text: the message for a person, filled by `locate`."""

    def __init__(self, result: abi.LocateResult, note: str) -> None:
        self.found = FOUND.get(result.found, "undecided")
        self.operator, self.module = _native.text(result.op), _native.text(result.module)
        self.node = _native.text(getattr(result, "node", b""))
        self.source, self.tensor = _native.text(result.source), _native.text(result.tensor)
        self.cause, self.sentence = _native.text(result.cause_class), _native.text(result.sentence)
        self.rule, self.boundary, self.micro = result.rule, result.boundary, result.micro_step
        self.owner, self.persists, self.faithful = result.owner, result.persists, bool(result.faithful)
        self.reproduced, self.tried, self.replays = result.reproduced, result.tried, result.replays
        self.candidates, self.later = result.candidates, result.later
        self.rows = list(result.rows[:result.rows_needed]) if result.rows and result.rows_needed else []
        self.rows_rank = result.rows_rank
        self.keep: Optional[List[int]] = None  # [rows x tokens] 1: that token is needed; None: all
        self.seconds = result.nanoseconds / 1e9
        self.note = note  # what could not be done
        self.text = ""

    @property
    def op(self) -> str:
        """The operator; the same as `operator`."""
        return self.operator

    def __repr__(self) -> str:
        return (f"Located({self.found}, {self.operator!r} in {self.module!r} at {self.source}, {self.cause}, "
                f"{self.reproduced} of {self.tried}, {self.replays} replays)")


class Locator:
    """One call of fb_locate_run.

    again_: a Replay or an UpdateReplay. rows_of_micro: the batch of the finding's micro-step, for minimising; None: cannot be made
    smaller. rows_matter: not, where any row alone shows it: no sample is to blame then. seconds_max: after it no smaller batch is
    tried.
    """

    def __init__(self, again_: Any, program: Optional[Program], ranks: Group, micro: int, seconds_max: float = 300.0,
                 fill: float = 0.0, rows_matter: bool = True) -> None:
        self.again, self.program, self.ranks, self.fill = again_, program, ranks, fill
        self.batch = smaller.batch_of(program, micro) if program is not None and rows_matter else smaller.NO_BATCH
        self.until = time.monotonic() + seconds_max
        self.kept: List[Kept] = []
        self.failure: Optional[BaseException] = None  # of the user's, to be raised when C has returned
        self.sentences: List[str] = []  # why replays failed
        self.late = False
        self.unwritten = 0

    # ---- callbacks ---------------------------------------------------------------------------------------------------------------

    def _replay(self, _ctx: Any, handle: Any, request: Any, err: Any) -> int:
        asked = request.contents
        try:
            change = self._change(asked)
            tape = self.again.run(handle, change, self.fill)
        except TapeError as why:
            return self._failed(err, why, why.status)
        except Unsupported as why:
            return self._failed(err, why, abi.E_UNSUPPORTED)
        except (MemoryError, torch.cuda.OutOfMemoryError) as why:
            return self._failed(err, why, abi.E_NOMEM)
        except Exception as why:  # the step itself may raise, as an embedding does for a token that it has not
            # A model that refuses another format or batch has no replay of that kind; one that refuses its own has failed.
            return self._failed(err, why, abi.E_USAGE if asked.purpose == abi.REPLAY_AGAIN else abi.E_UNSUPPORTED)
        except BaseException as why:
            self.failure = why
            return self._failed(err, why, abi.E_USAGE)
        self.unwritten = max(self.unwritten, self.again.unwritten)
        if asked.purpose == abi.REPLAY_AGAIN and tape is not None:
            self.kept = tape.kept
        return abi.OK

    def _failed(self, err: Any, why: BaseException, status: int) -> int:
        sentence = f"{type(why).__name__}: {why}" if not isinstance(why, (TapeError, Unsupported)) else str(why)
        if sentence not in self.sentences and len(self.sentences) < 8:
            self.sentences.append(sentence)
        err.contents.code = status
        err.contents.message = sentence.encode()[:1000]
        getattr(self.again, "lost", lambda: None)()  # others that wait for this rank hear of it
        return status

    def _change(self, asked: Any) -> Change:
        if asked.purpose == abi.REPLAY_AGAIN:
            return Change()
        if asked.purpose == abi.REPLAY_PRECISION:
            return Change(widen=True)
        if isinstance(self.again, UpdateReplay):
            raise Unsupported("the update does not read the batch")
        if asked.purpose == abi.REPLAY_OTHER:
            return self._of_rank(asked.as_rank)
        if self._over():
            raise Unsupported("the time for locating is over")
        if not asked.rows or self.ranks.rank != asked.rows_rank:
            return Change()
        rows = list(asked.rows[:asked.row_count])
        keep = None
        if asked.keep:
            if not self.batch.columns or asked.column_count != self.batch.columns:
                raise Unsupported("it is not known which numbers of the batch are tokens")
            flat = torch.tensor(asked.keep[:len(rows) * asked.column_count], dtype=torch.uint8)
            keep = flat.reshape(len(rows), asked.column_count).bool()
        assert self.program is not None
        return smaller.change_of(self.program, self.batch, rows, keep)

    def _over(self) -> bool:
        """The same answer on all ranks, since some of them may meet in a collective of the replay."""
        over = int(time.monotonic() > self.until)
        if self.ranks.max_ints is not None:
            over = int(self.ranks.max_ints([over])[0])
        self.late = self.late or bool(over)
        return bool(over)

    def _of_rank(self, rank: int) -> Change:
        """The batch and the random state of another rank, broadcast. Only where all have the same shapes."""
        if self.ranks.max_ints is None or self.ranks.group is None or self.program is None:
            raise Unsupported("ranks cannot exchange their batches here")
        number = smaller.alike(self.program)
        high, low = self.ranks.max_ints([number, -number])
        if high != -low:
            raise Unsupported("the batches of the ranks have other shapes")
        import torch.distributed as dist
        externals: Dict[int, torch.Tensor] = {}
        for at, external in enumerate(self.program.externals):
            if external.batch and not external.live():
                data = (external.before if external.before is not None else external.tensor).detach().contiguous().clone()
                dist.broadcast(data, group_src=rank, group=self.ranks.group) if _has_group_src() else \
                    dist.broadcast(data, src=rank, group=self.ranks.group)
                externals[at] = data
        rng: Dict[int, torch.Tensor] = {}
        for index, step in enumerate(self.program.steps):
            state = step.rng.cpu if isinstance(step, RootCall) else getattr(step, "rng", None)
            if state is not None:
                rng[index] = state.clone()
                dist.broadcast(rng[index], group_src=rank, group=self.ranks.group) if _has_group_src() else \
                    dist.broadcast(rng[index], src=rank, group=self.ranks.group)
        return Change(externals=externals, rng=rng)

    def _rerun(self, _ctx: Any, asked: Any, err: Any) -> int:
        try:
            return again.rerun(self.kept, asked.contents)
        except Exception as why:
            return self._failed(err, why, abi.E_UNSUPPORTED)
        except BaseException as why:
            self.failure = why
            return abi.E_UNSUPPORTED

    def _max(self, _ctx: Any, values: Any, count: int, err: Any) -> int:
        try:
            if self.ranks.max_ints is None:  # this rank replays for itself, and what it sees is all there is
                return abi.OK
            for i, value in enumerate(self.ranks.max_ints(values[:count])):
                values[i] = int(value)
            return abi.OK
        except Exception as why:
            return self._failed(err, why, abi.E_IO)
        except BaseException as why:
            self.failure = why
            return abi.E_IO

    # ---- the call ----------------------------------------------------------------------------------------------------------------

    def run(self, finding: Finding, *, parts: int = 0, strategy: int = abi.LOCATE_SWEEP, probes_max: int = 0, times: int = 0,
            folder: Optional[str] = None, precision: str = "fp32", step: int = 0, first_step_of_attempt: int = 0,
            sample_ids: Optional[Sequence[int]] = None, differences: Sequence[str] = (), run_id: str = "", case_id: str = "",
            words: Optional[Callable[[abi.LocateConfig, abi.LocateResult], str]] = None) -> Located:
        """Raises LibraryError for what fb_locate_run refuses, and what the user's own code or keyboard raised."""
        lib = _native.lib()
        result, err = abi.LocateResult.new(), abi.Error()
        ids = (
            (ctypes.c_int64 * self.batch.rows)(*sample_ids)
            if sample_ids is not None and len(sample_ids) == self.batch.rows
            else None
        )
        sentences = (ctypes.c_char_p * max(len(differences), 1))(*[sentence.encode() for sentence in differences])
        config = abi.LocateConfig.new(
            parts=parts,
            rank=self.ranks.rank,
            world=self.ranks.world,
            finding_rank=finding.rank,
            finding_boundary=finding.boundary,
            finding_micro_step=finding.micro,
            finding_kind=finding.kind,
            finding_module=finding.module,
            finding_tensor=finding.tensor,
            strategy=strategy,
            probes_max=probes_max,
            times=times,
            folder=folder,
            precision=precision,
            rows=self.batch.rows,
            columns=self.batch.columns,
            step=step,
            first_step_of_attempt=first_step_of_attempt,
            replay=abi.REPLAY_FN(self._replay),
            rerun=abi.RERUN_FN(self._rerun),
            difference_count=len(differences),
            finding_injected=int(finding.injected),
            run_id=run_id or None,
            case_id=case_id or None,
        )
        if ids is not None:
            config.sample_ids = ids
        if differences:
            config.differences = sentences
        if self.ranks.world > 1:
            config.max = abi.REDUCE_MAX_FN(self._max)
        status = lib.fb_locate_run(ctypes.byref(config), ctypes.byref(result), ctypes.byref(err))
        try:
            if self.failure is not None:
                raise self.failure
            _native.raise_for(status, err)
            located = Located(result, err.text)
            if result.keep and located.rows and self.batch.columns:
                located.keep = list(result.keep[:len(located.rows) * self.batch.columns])
            if words is not None:
                located.text = words(config, result)
            return located
        finally:
            lib.fb_locate_release(ctypes.byref(result))


def _has_group_src() -> bool:
    """broadcast takes the rank in the group (torch 2.6 and later); before that the global one, which is the same in a group of
    all."""
    import inspect
    import torch.distributed as dist
    return "group_src" in inspect.signature(dist.broadcast).parameters
