"""Who the ranks are, and how they come to one decision.

`join` is called once, at the first training forward. It finds rank and world, the run's id and attempt (equal on all ranks), and
whether the ranks vote:

    vote   the ranks wait for one another in every update anyway (DDP, FSDP, tensor parallel), all came to the rendezvous in time,
           and mean the same. Four integers, MIN, on a group of our own: on a shared one, our collective and one of the program's
           could be taken for each other.
    norm   plain DDP without that: the reduced gradients are equal on all ranks, and each decides by them alone
    none   everything else: a rank that finds something bad stops

A vote is never begun where some rank may not come to it: the rest would wait for it.
"""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _native, runs
from .._version import __version__
from ..errors import LibraryError
from . import patch, say, sharded, silent
from .arming import Rendezvous, turn

RANKS_MAX = 256  # gloo connects every pair of ranks
LEFT_SECONDS = 2.0  # a vote that takes longer is looked after; ranks may well come minutes late, when they save or compile
AGAIN_SECONDS = 5.0  # ranks that do the same to their gradients come within moments of one another
_SAME = ("version", "on_bad", "max_skips", "leave_out", "off", "hold", "world")  # of what a rank says: must be equal to vote
_joins = 0
_uneven: List[str] = []  # why ranks of this process may take different numbers of updates


class RanksLost(RuntimeError):
    """A rank did not answer, and nothing can be agreed on any more."""


class Ranks:
    """The ranks of a run, seen from one of them.

    rank, world, local_rank, dp_rank (-1: unknown)   attempt, run_id: as all ranks have them; run_id "" and attempt 0: to be made up
    agreement   AGREE_VOTE, AGREE_NORM or AGREE_NONE  replicated  parameters are equal on all ranks to the last bit
    sharded     parameters are spread over ranks, or split (FSDP, tensor parallel): modules reduce by themselves
    group       process group of our own, gloo, all ranks; None without a vote
    not_covered sentences for coverage
    """

    def __init__(self, rank: int = 0, world: int = 1, local_rank: int = 0) -> None:
        self.rank, self.world, self.local_rank = rank, world, local_rank
        self.dp_rank = -1
        self.attempt = 0
        self.run_id = ""
        self.agreement = abi.AGREE_VOTE if world == 1 else abi.AGREE_NONE
        self.replicated = False
        self.sharded = False
        self.group: Any = None
        self.not_covered: List[str] = []
        self.processes: List[silent.Process] = []
        self.synced = 0  # backwards of this process in which gradients were averaged over the ranks
        self._counted: Any = None
        self._passed = False  # an update was left out here: the others may have gone on without us
        self.failure: Optional[str] = None  # why no vote can complete any more
        self.alone = ""  # the same, where no other rank is to blame for it
        self.name = ""  # prefix of our keys in the store
        self._store: Any = None

    def min4(self, words: Sequence[int]) -> Optional[Tuple[int, int, int, int]]:
        """The smallest of each of four words over all ranks. None: the collective failed, now or before, which is "no quorum".
        Cost: one all-reduce of 32 bytes."""
        out = self._reduce(words, "MIN")
        return None if out is None else (out[0], out[1], out[2], out[3])

    @property
    def max_ints(self) -> Optional[Callable[[Sequence[int]], List[int]]]:
        """A function: the largest of each value over all ranks. It raises RanksLost when the collective failed, now or before.
        None where the ranks have no group: each is on its own."""
        return self._max if self.world == 1 or self.group is not None else None

    def _max(self, values: Sequence[int]) -> List[int]:
        out = self._reduce(values, "MAX")
        if out is None:
            raise RanksLost(f"the ranks cannot agree: {self.failure or 'they have no group'}")
        return out

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Around fb_run_open, to which the variables say more than the configuration: they name this run and attempt there, and are
        what they were afterwards."""
        wanted = {"FIRSTBAD_RUN_ID": self.run_id, "FIRSTBAD_ATTEMPT": str(self.attempt)} if self.run_id and self.attempt else {}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _reduce(self, values: Sequence[int], operation: str) -> Optional[List[int]]:
        if self.world == 1:
            return list(values)
        if self.group is None or self.failure is not None:
            return None
        from torch.utils._python_dispatch import _disable_current_modes

        if self._passed:
            self._passed = False
            self._is_anyone_gone()
        try:
            with _disable_current_modes(), torch.no_grad():  # a mode of the program must not see, or change, our integers
                words = torch.tensor(list(values), dtype=torch.int64, device="cpu")
                options = torch.distributed.AllreduceOptions()
                options.reduceOp = getattr(torch.distributed.ReduceOp, operation)
                self._wait(self.group.allreduce([words], options))
                return [int(v) for v in words.tolist()]
        except RanksLost:
            raise
        except Exception as why:
            self.failure = _first_line(why)
        return None

    def _wait(self, work: Any) -> None:
        """Until all ranks have come. One that will not come says so in the store, and is not waited for: RanksLost."""
        began = time.monotonic()
        looked = began
        while not work.is_completed():
            now = time.monotonic()
            time.sleep(0.0 if now - began < 0.001 else 0.0002 if now - began < 0.1 else 0.01)
            if now - looked > LEFT_SECONDS:
                looked = now
                self._is_anyone_gone()
        work.wait()  # raises what went wrong

    def _is_anyone_gone(self) -> None:
        """Has a rank left the vote, or gone on to its next forward past the one that runs?"""
        left = f"{self.name}/left"
        why = self._store.get(left).decode() if self._store.check([left]) else ""
        if not why:
            for rank in range(self.world):
                key = f"{self.name}/passed/{rank}"
                if rank != self.rank and self._store.check([key]) and int(self._store.get(key)) >= self.synced > 0:
                    why = f"rank {rank} went on to its next forward, and left this update out"
        if why:
            self.failure = why
            raise RanksLost(why)

    def averaged(self, backward: Any) -> None:
        """Gradients were averaged in this backward (anything that tells it from others)."""
        if backward != self._counted:
            self._counted = backward
            self.synced += 1

    def passed(self) -> None:
        """This rank goes on without a vote on the gradients that were averaged last. Cost: one request to the store."""
        if self.group is not None and self.failure is None:
            self._passed = True
            silent.in_time(lambda: self._store.set(f"{self.name}/passed/{self.rank}", str(self.synced)), silent.ANSWER_SECONDS)

    def all_here(self, what: str) -> bool:
        """Do all ranks ask this, once and at about the same time? For what a rank alone may have met: no collective is begun."""
        meet = Rendezvous(self._store, self.rank, self.world, AGAIN_SECONDS)
        return self.group is not None and self.failure is None and meet.agree(
            f"{turn(_joins)}/{what}", "", lambda _: "all", lambda _: "").text == "all"

    def fail_alone(self, why: str) -> None:
        """No vote of this rank completes from here on, and no other rank is to blame."""
        self.failure = self.alone = why

    def leave(self, why: str) -> None:
        """This rank votes no more, and the others shall not wait for it: they stop guarding as well, and train on."""
        if self.group is not None:
            self.group = None
            silent.in_time(lambda: self._store.set(f"{self.name}/left", f"rank {self.rank} votes no more: {why}"[:500]),
                           silent.ANSWER_SECONDS)

    def note_failure(self, error: BaseException) -> Optional[str]:
        """What to say when a collective failed, the program's or ours: who did not answer. None when `error` is something else, or
        was told already. Takes a second at most."""
        if self.world == 1 or not is_collective_failure(error):
            return None
        told = self.failure is not None and self.failure.startswith("rank ")
        silence = silent.find(self._store, f"{self.name}/failed", self.rank, self.processes)
        said = silence.text() if silence.ranks else f"a collective failed, and {silence.text()}"
        self.failure = said
        return None if told else f"{said}: {_first_line(error)}"

    def silence(self) -> str:
        """Who does not answer now, in words; for a vote that failed."""
        if self.alone:
            return self.alone
        silence = silent.find(self._store, f"{self.name}/failed", self.rank, self.processes)
        self.failure = silence.text() if silence.ranks else self.failure
        return silence.text()


def lost(session: Any, error: Optional[BaseException]) -> None:
    """The program met `error`. Where it says that a rank did not answer: tell which one, at once, and leave in the ledger that
    this rank voted and had no answer, so that `firstbad why` names the one that did not. The error itself goes on to whom it
    belongs."""
    ranks = session.ranks
    if ranks is None or error is None:
        return
    said = ranks.note_failure(error)
    if said is None:
        return
    update = session.update
    number = session.number if update is None else update.number
    say.write(f"firstbad: step {number} is not applied on rank {ranks.rank}: {said}\n")
    if ranks.agreement != abi.AGREE_VOTE or (update is not None and update.verdict is not None):
        return
    update = session.need_step()  # a forward that failed comes before the library heard of the update
    lib = _native.lib()
    words = (ctypes.c_int64 * 4)()
    _native.call(lib.fb_step_ballot, session.run, words)
    # No verdict: that would be ours to halt a job that its own failure ends, or that knows how to go on without a rank.
    update.open = False
    session.stop(ranks.failure or said)


def install(patches: Any) -> None:
    """Hear of Join: the ranks below it may take different numbers of updates."""
    join_module = sys.modules.get("torch.distributed.algorithms.join")
    if join_module is not None:
        patches.wrap(join_module.Join, "__enter__", _join_entered)


def _join_entered(original: Any) -> Any:
    def enter(self: Any) -> Any:
        if getattr(self, "_enable", True):
            _no_more_votes()
        return original(self)

    return enter


@patch.guest("ranks")
def _no_more_votes() -> None:
    why = "Join: ranks may take different numbers of updates"
    _uneven[:] = [why]
    session = sys.modules[__package__ + ".session"].current() if __package__ + ".session" in sys.modules else None
    if session is not None and session.ranks is not None and session.ranks.group is not None:
        session.stop(why)


_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError", "DistError")
_LOST = ("Connection closed by peer", "Connection reset by peer", "Connection refused", "Broken pipe", "gloo/transport",
         "NCCL error", "Timed out waiting", "timed out", "Application timeout", "Socket closed")


def is_collective_failure(error: BaseException) -> bool:
    """True for what torch.distributed raises when a peer is gone or late."""
    kinds = (getattr(torch.distributed, name, None) for name in _ERRORS)
    if any(kind is not None and isinstance(error, kind) for kind in kinds):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _LOST)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].partition(' This is typically caused by')[0]}"[:300]


# ---- joining ---------------------------------------------------------------------------------------------------------------------


def join(session: Any, roots: Sequence[torch.nn.Module] = ()) -> Ranks:
    """The ranks of this process's training. At the first root forward in grad mode, once; `roots`: the modules that train, as far
    as they are known (session.roots otherwise).

    Cost: nothing in a job of one process; otherwise a few requests to the store, and one group. A rank that never comes costs the
    others FIRSTBAD_ARM_SECONDS (60), once, and only where the ranks would vote or nobody named the run.
    """
    global _joins
    _joins += 1
    ranks = _from_environment()
    dist = torch.distributed if torch.distributed.is_available() and torch.distributed.is_initialized() else None
    if dist is None:
        if ranks.world > 1:
            ranks.not_covered.append(f"WORLD_SIZE is {ranks.world} and torch.distributed is not initialised: each rank decides for "
                                     "itself")
        _own_run(ranks)
        return ranks
    ranks.rank, ranks.world = dist.get_rank(), dist.get_world_size()
    ranks.agreement = abi.AGREE_VOTE if ranks.world == 1 else abi.AGREE_NONE
    if ranks.world == 1:
        _own_run(ranks)
        return ranks
    coupling = sharded.coupling(list(roots) or list(getattr(session, "roots", ()) or ()), ranks.world)
    ranks.dp_rank = coupling.dp_rank
    ranks.sharded = bool(coupling.kinds - {"ddp"})
    ranks.not_covered.extend(coupling.lines)
    reason = _no_vote(ranks.world, coupling)
    _agree(ranks, coupling, reason)
    return ranks


def _from_environment() -> Ranks:
    """Rank and world as launchers tell them."""
    world = _number("WORLD_SIZE", 1)
    rank = _number("RANK", 0)
    if world < 1 or not 0 <= rank < world:
        rank, world = 0, 1
    ranks = Ranks(rank, world, _number("LOCAL_RANK", 0))
    ranks.run_id = os.environ.get("FIRSTBAD_RUN_ID", "")
    ranks.attempt = runs.attempt_from_environment()
    return ranks


def _number(name: str, otherwise: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return otherwise


def _seconds() -> float:
    try:
        return max(0.0, float(os.environ.get("FIRSTBAD_ARM_SECONDS", "60")))
    except ValueError:
        return 60.0


def _no_vote(world: int, coupling: sharded.Coupling) -> str:
    """Why this rank would not vote; "" when it would, as far as it can see."""
    wish = os.environ.get("FIRSTBAD_VOTE", "auto")
    if wish == "never" or "votes" in [part.strip() for part in os.environ.get("FIRSTBAD_OFF", "").split(",")]:
        return "switched off"
    if _uneven:
        return _uneven[0]
    if world > RANKS_MAX:
        return f"{world} ranks, and at most {RANKS_MAX} are connected for it"
    if wish == "always":
        return ""
    if not coupling.groups:
        return "nothing seen by which the ranks wait for one another in every update (DDP, FSDP, tensor parallel)"
    return ""


def _agree(ranks: Ranks, coupling: sharded.Coupling, reason: str) -> None:
    """Rendezvous of all ranks: what the run is called, and whether they vote."""
    from torch.distributed import distributed_c10d as c10d

    try:
        ranks._store = c10d._get_default_store()
    except Exception as why:  # the MPI backend has none
        ranks._store, reason = None, reason or f"torch.distributed has no store here ({_first_line(why)})"
    ranks.name = f"firstbad/{turn(_joins)}"
    norm = "ddp" in coupling.kinds and coupling.replicas
    if ranks._store is None or (reason and ranks.run_id and ranks.attempt and not norm):
        # Nothing to agree on but the attempt, and that is not worth a minute for a rank that never trains.
        _own_run(ranks)
        ranks.not_covered.append(f"ranks do not vote: {reason}")
        return
    given = os.environ.get
    mine = {"version": __version__, "on_bad": given("FIRSTBAD_ON_BAD", ""), "max_skips": given("FIRSTBAD_MAX_SKIPS", ""),
            "leave_out": given("FIRSTBAD_LEAVE_OUT", ""), "off": given("FIRSTBAD_OFF", ""), "world": ranks.world, "no": reason,
            "hold": given("FIRSTBAD_HOLD", ""),
            "groups": coupling.groups, "always": os.environ.get("FIRSTBAD_VOTE") == "always", "norm": norm,
            "machine": _machine(), "process": silent.me(), "run_id": ranks.run_id, "attempt": ranks.attempt}
    meet = Rendezvous(ranks._store, ranks.rank, ranks.world, _seconds(), _slow(ranks))
    agreed = meet.agree(f"{turn(_joins)}/who", json.dumps(mine), lambda said: _judge(ranks, said),
                        lambda away: _missing(ranks, away, norm))
    if agreed.text is None:
        _own_run(ranks)
        ranks.not_covered.append(f"ranks do not vote: {agreed.why}")
        return
    told = json.loads(agreed.text)
    ranks.run_id, ranks.attempt = told["run_id"], told["attempt"]
    ranks.replicated = told["replicated"]
    ranks.agreement = told["agreement"]
    ranks.processes = [silent.Process(*p) for p in told["processes"]]
    if ranks.agreement == abi.AGREE_VOTE:
        _connect(ranks, meet, norm)
    elif told["why"]:
        ranks.not_covered.append(f"ranks do not vote: {told['why']}")


def _judge(ranks: Ranks, said: Sequence[str]) -> str:
    """On rank 0: what follows from what all ranks said."""
    all_of = [json.loads(text) for text in said]
    why = next((one["no"] for one in all_of if one["no"]), "")
    for key in _SAME:
        other = next((r for r, one in enumerate(all_of) if one[key] != all_of[0][key]), None)
        if other is not None and not why:
            why = f"rank {other} has {key} {all_of[other][key]!r}, and rank 0 {all_of[0][key]!r}"
    if not why and not all(one["always"] for one in all_of):
        if not sharded.connected([g for one in all_of for g in one["groups"]], ranks.world):
            why = "some ranks do not wait for the others in every update: DDP or FSDP joins parts of them only"
    norm = all(one["norm"] for one in all_of)
    equal = norm and all(one["machine"] == all_of[0]["machine"] for one in all_of)
    return _text(ranks, why, norm, equal and not why, [one["process"] for one in all_of])


def _missing(ranks: Ranks, away: Sequence[int], norm: bool) -> str:
    names = ", ".join(str(r) for r in away[:8]) + (", ..." if len(away) > 8 else "")
    who = f"rank{'s' if len(away) > 1 else ''} {names}"
    return _text(ranks, f"{who} did not come to the first update within {_seconds():.0f} s", norm, False, [])


def _text(ranks: Ranks, why: str, norm: bool, replicated: bool, processes: Sequence[Any]) -> str:
    agreement = abi.AGREE_VOTE if not why else abi.AGREE_NORM if norm else abi.AGREE_NONE
    _name_run(ranks)
    return json.dumps({"agreement": agreement, "run_id": ranks.run_id, "attempt": ranks.attempt, "why": why,
                       "replicated": replicated, "processes": list(processes)})


def _slow(ranks: Ranks) -> Any:
    def tell(away: Sequence[int]) -> None:
        whom = f"rank{'s' if len(away) > 1 else ''} {', '.join(map(str, away[:8]))}" if away else "the other ranks"
        say.write(f"firstbad: rank {ranks.rank} waits for {whom} at the first update, up to {_seconds():.0f} s and once, so that "
                  "all can vote\n")

    return tell


def _machine() -> str:
    """What makes the same operators give the same bits, roughly."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() and torch.cuda.is_initialized() else ""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {torch.__version__} {device}"


def _connect(ranks: Ranks, meet: Rendezvous, norm: bool) -> None:
    """The group. All ranks are here, and make it; whether every one of them got it is agreed on once more."""
    error = ""
    try:
        ranks.group = torch.distributed.new_group(backend="gloo", timeout=_timeout())
    except Exception as why:
        error = _first_line(why)
    agreed = meet.agree(f"{turn(_joins)}/group", error, lambda said: next((e for e in said if e), ""),
                        lambda away: f"ranks {', '.join(map(str, away))} did not get the group")
    if agreed.text != "":
        ranks.group = None
        ranks.replicated = False
        ranks.agreement = abi.AGREE_NORM if norm and agreed.text is not None else abi.AGREE_NONE
        ranks.not_covered.append(f"ranks do not vote: {agreed.text or agreed.why}")


def _timeout() -> Any:
    """The job's own: a shorter one would end healthy runs in which a rank saves or compiles for minutes."""
    from torch.distributed import distributed_c10d as c10d

    group = c10d._get_default_group()
    for device in ("cpu", "cuda"):
        try:
            return group._get_backend(torch.device(device)).options._timeout
        except Exception:
            continue  # this group has no backend for that device
    return None  # torch's default


# ---- the run's id and attempt ----------------------------------------------------------------------------------------------------


def _own_run(ranks: Ranks) -> None:
    """run_id and attempt where no other rank is asked. A process that nobody named is a run of its own."""
    if not ranks.run_id:
        ranks.rank, ranks.world, ranks.attempt = 0, 1, 0
        ranks.agreement = abi.AGREE_VOTE
        return
    _next_attempt(ranks)


def _name_run(ranks: Ranks) -> None:
    """On rank 0, for all: an id and an attempt in any case."""
    if not ranks.run_id:
        made = (ctypes.c_char * 64)()
        if _native.lib().fb_run_new_id(made) != abi.OK:
            raise RuntimeError("no run id could be made")
        ranks.run_id = _native.text(made)
    _next_attempt(ranks)


def _next_attempt(ranks: Ranks) -> None:
    """The attempt moves on where another process of this launch has used it: trainings one after another below one launch."""
    folder = os.environ.get("FIRSTBAD_DIR") or "firstbad-runs"
    taken = os.path.join(folder, ranks.run_id, "ledger", f"a{ranks.attempt}", f"r{ranks.rank:05d}.log")
    if ranks.attempt >= 1 and not os.path.exists(taken):
        return
    number = ctypes.c_int32()
    try:
        _native.call(_native.lib().fb_run_next_attempt, os.fsencode(folder), ranks.run_id.encode(), ctypes.byref(number))
        ranks.attempt = max(1, number.value)
    except LibraryError:
        ranks.attempt = max(1, ranks.attempt)  # a folder that cannot be read: fb_run_open will say what it is


def table(ranks: Ranks) -> Dict[str, Any]:
    """For the note of a process and for tests."""
    return {"rank": ranks.rank, "world": ranks.world, "run_id": ranks.run_id, "attempt": ranks.attempt,
            "agreement": ranks.agreement, "replicated": ranks.replicated, "not_covered": list(ranks.not_covered)}
