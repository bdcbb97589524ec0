"""The guard in the hands of a program: the same machinery as under `firstbad run`, with what only the program knows.

    guard = firstbad.attach(model, optimizer, scaler, sample_ids=lambda batch: batch["id"])
    for batch in loader:
        with guard.step(batch):                     # optional: names the samples, and ends the update where the block ends
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
        if guard.last.skipped: ...

Nothing else has to change: what `firstbad run` sees is seen here too. Where it cannot see (a captured graph, gradients that are no
`.grad` of a parameter, an optimizer that is not torch's), `check` asks the gate:

    if guard.check({"w": gradient}, loss=loss):
        w -= 0.1 * gradient

Under `firstbad run` its settings win. Several models or several calls are one guard, since a process has one session.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

import torch

from .. import _abi as abi
from .. import _native
from ..errors import FirstbadError
from . import hooks, patch, roots, session as sessions, views
from .registry import optimizers as known_optimizers, scalers as known_scalers
from .update import Update

_ACTIONS = ("proceed", "skip", "skip_freeze", "replay", "degrade", "halt")
Models = Union[torch.nn.Module, Iterable[torch.nn.Module]]


class Outcome(NamedTuple):
    """What came of an update.

    step: its number; skipped: nothing of it was applied; action: "proceed", "skip", "skip_freeze", "replay", "degrade" or "halt";
    fault: judged a fault, and no probing of a loss scale; rank: where it was found, None where nothing was; case: "a1-000412" or
    ""; text: the message, "" where nothing was located.
    """

    step: int
    skipped: bool
    action: str
    fault: bool
    rank: Optional[int]
    case: str
    text: str


class Guard:
    """What attach returns. Attributes are read, never set."""

    def __init__(self, sample_ids: Optional[Callable[[Any], Optional[Sequence[int]]]] = None) -> None:
        self._sample_ids = sample_ids

    @property
    def last(self) -> Optional[Outcome]:
        """Of the update that was decided last; None before the first."""
        session = sessions.current()
        if session is None:
            return None
        update = session.update if session.update is not None and session.update.verdict is not None else session.last
        return _outcome(update) if update is not None and update.verdict is not None else None

    @property
    def folder(self) -> str:
        """Of the run: for `firstbad why`. "" before the first update."""
        session = sessions.current()
        return session.folder if session is not None else ""

    @property
    def not_covered(self) -> List[str]:
        """What is not looked at, a sentence each."""
        session = sessions.current()
        return list(session.coverage.lines) if session is not None else []

    @contextlib.contextmanager
    def step(self, batch: Any = None, number: Optional[int] = None) -> Iterator["Guard"]:
        """One update. number: what the program's own log calls it; it must grow. An update that the block leaves unfinished (an
        accumulation) goes on in the next block. Raises Halted from within."""
        session = sessions.obtain()
        if session is not None and session.mine():
            _begin(session, self._ids(batch), number)
        yield self
        session = sessions.current()
        if session is not None and session.mine() and session.update is not None and session.update.over():
            session.end_update()

    def _ids(self, batch: Any) -> Optional[List[int]]:
        if self._sample_ids is None or batch is None:
            return None
        ids = self._sample_ids(batch)
        if isinstance(ids, torch.Tensor):
            ids = ids.reshape(-1).tolist()
        return None if ids is None else [int(one) for one in ids]

    def check(self, gradients: Union[Mapping[str, torch.Tensor], Sequence[torch.Tensor]],
              loss: Optional[torch.Tensor] = None) -> bool:
        """May this update be applied? True: apply it now. False: leave it out, on every rank.

        gradients: by name, in the order of the dataflow; the same names in every update. loss: a scalar. Raises Halted, and
        FirstbadError while an optimizer of torch steps. Cost: one read of them.
        """
        session = sessions.obtain()
        if session is None:
            return True  # not guarded: a worker, a fork, or a guard that failed, which was told
        if session.halted is not None:
            raise session.halted
        named = dict(gradients) if isinstance(gradients, Mapping) else {f"[{i}]": g for i, g in enumerate(gradients)}
        return _checked(session, named, loss) is not False

    def close(self) -> None:
        """End the run. Training that goes on afterwards is a new one. Twice does no harm."""
        sessions.close()

    def __enter__(self) -> "Guard":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def attach(model: Optional[Models] = None, optimizer: Any = None, scaler: Any = None, *, on_bad: str = "skip", max_skips: int = 3,
           run_dir: Optional[str] = None, run_id: Optional[str] = None, locate: bool = True,
           sample_ids: Optional[Callable[[Any], Optional[Sequence[int]]]] = None) -> Guard:
    """Guard this process. See the head of the file.

    model       module or modules that are called in training, as they are called (DDP, FSDP, compiled); None: found by themselves
    optimizer   optimizer or optimizers, scaler likewise; None: found by themselves where they are made after this call
    on_bad      "skip", "halt" or "observe"     max_skips  bad updates in a row that are left out before the run halts
    run_dir     folder that holds runs          run_id     name of this one; made from the time
    locate      replay a bad update and name its operator
    sample_ids  batch -> ids of its samples, for `with guard.step(batch)`
    Raises ValueError for settings that mean nothing, FirstbadError when the library is not there.
    """
    if on_bad not in ("skip", "halt", "observe"):
        raise ValueError(f'on_bad must be "skip", "halt" or "observe", not {on_bad!r}')
    if max_skips < 1:
        raise ValueError(f"max_skips must be 1 or more, not {max_skips!r}")
    _native.lib()
    hooks.install()
    session = sessions.current()
    if session is None or not session.run.value:
        sessions.Session.settings = {"on_bad": on_bad, "max_skips": max_skips, "run_dir": run_dir, "run_id": run_id,
                                     "locate": locate}
    for one in _several(model, torch.nn.Module):
        roots.root(one)
    for one in _several(optimizer, object):
        known_optimizers.add(_inner(one))
    for one in _several(scaler, object):
        known_scalers.add(one)
    return Guard(sample_ids)


def _several(given: Any, kind: type) -> List[Any]:
    if given is None:
        return []
    if isinstance(given, (list, tuple)):
        return list(given)
    return [given] if isinstance(given, kind) else list(given)


def _inner(optimizer: Any) -> Any:
    """The optimizer of torch below a wrapper that only hands on (Accelerate's)."""
    inner = getattr(optimizer, "optimizer", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer


def _outcome(update: Update) -> Outcome:
    verdict = update.verdict
    assert verdict is not None
    return Outcome(int(verdict.step), update.skipped, _ACTIONS[verdict.action], bool(verdict.fault),
                   int(verdict.first_rank) if verdict.first_rank >= 0 else None, verdict.case_id.decode(),
                   getattr(update.located, "text", "") or "")


@patch.guest("session")
def _begin(session: Any, ids: Optional[List[int]], number: Optional[int]) -> None:
    if session.update is not None and (session.update.over() or session.update.verdict is not None):
        session.end_update()
    if number is not None and session.update is None:
        if session.run.value:
            session.number = max(session.number, int(number))
        else:
            session.first_wanted = int(number)
            session.number = int(number)
    update = session.update if session.update is not None else session._begin()
    if ids is not None:
        update.samples = list(update.samples or []) + ids
        update.samples_given = True


@patch.guest("session", True)
def _checked(session: Any, named: Dict[str, torch.Tensor], loss: Optional[torch.Tensor]) -> bool:
    if session.optim.stepping is not None:
        raise FirstbadError("guard.check was called while an optimizer of torch steps, which is gated by itself")
    update = session.update
    if update is not None and (update.over() or update.verdict is not None):
        session.end_update()
    known = all(session.names.known_site(abi.ROLE_GRADIENT, "", f"{name}.grad") is not None for name in named)
    if not known:
        session.reopen()
        if not session.run.value:
            session.need_step()
            session.reopen()
        for name, gradient in named.items():
            session.names.site(session.run, abi.ROLE_GRADIENT, "", f"{name}.grad", tuple(gradient.shape))
    update = session.need_step()
    if loss is not None:
        session.gates.see_loss(update, loss)
    table = views.Table([session.names.sites[(abi.ROLE_GRADIENT, "", f"{name}.grad")] for name in named])
    session.gates.look_at(update, table, list(named.values()))
    session.gates.decide(update)
    update.stepped.append(0)
    if not update.skipped:
        _native.call(_native.lib().fb_step_apply, session.run)
        update.applied = True
    return not update.skipped
