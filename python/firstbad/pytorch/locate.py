"""An update was bad: replay it, find the operator, say why, and keep what a later replay needs. On every rank by the same decision.

`incident` is what the session calls, once a verdict is there and before anything of the update was applied. It reads of the
session:

  run, rank, world      the fb_run; which rank of how many
  ranks                 firstbad.pytorch.ranks.Ranks: max_ints(values), and group (of torch.distributed) where there is one
  recorder              recorder.Recorder of the update
  first_step            (optional) number of the first update of this attempt;  resumed: it began from a checkpoint
  gradient_names        (optional) id(leaf) -> (module, name) for leaves that belong to no root

and of the update: number; samples (optional: ids of the rows of each micro-step); held (optional: replay_update.Held of optimizers
whose step was made and taken back; else those of the registry are taken as they stand, with the gradients that they have now).
"""
from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _abi as abi
from .. import _native
from ..errors import FirstbadError, LibraryError
from . import bundle, registry, smaller, source
from . import words as saying
from .locator import Finding, Group, Located, Locator
from .program import Backward, Program, RootCall, digest_of
from .rehearse import Rehearsal, is_bad
from .replay import Names, Replay, Unsupported
from .replay_update import Held, UpdateReplay
from .where import clean

_PARTS = {"replay": abi.LOCATE_REPLAY, "search": abi.LOCATE_SEARCH, "cause": abi.LOCATE_CAUSE, "other": abi.LOCATE_OTHER_RANK,
          "minimise": abi.LOCATE_MINIMISE, "evidence": abi.LOCATE_EVIDENCE, "all": abi.LOCATE_ALL, "none": 0, "bundle": 0}
_BOUNDARIES = {"entry": abi.ENTRY, "input": abi.INPUT, "forward": abi.FORWARD, "loss": abi.LOSS, "local_gradient": abi.LOCAL_GRAD,
               "reduced_gradient": abi.REDUCED_GRAD, "update": abi.UPDATE, "checkpoint": abi.CHECKPOINT}
_KINDS = {"nan": abi.KIND_NAN, "pos_inf": abi.KIND_POS_INF, "neg_inf": abi.KIND_NEG_INF, "out_of_range": abi.KIND_OUT_OF_RANGE,
          "all_ignored": abi.KIND_ALL_IGNORED, "domain": abi.KIND_DOMAIN}


def incident(session: Any, update: Any, verdict: Any) -> Optional[Located]:
    """What is known of a bad update, `text` being the message; None where nothing was to be located.

    Files go into the case. Raises FirstbadError where the replay changed what it may not, and what the user's own code raises on
    Ctrl-C. Cost: up to some ten steps for a name, and the minimising.
    """
    case = verdict.case_id.decode() if isinstance(verdict.case_id, bytes) else str(verdict.case_id)
    if not verdict.fault:
        return None
    seen = session.__dict__.setdefault("_located_cases", set())
    if not case or case in seen:
        return None
    seen.add(case)
    if not wants_locating():
        return None
    if getattr(getattr(session, "ranks", None), "sharded", False):
        # Modules gather and reduce by themselves there, in memory that comes and goes: what a tape says of it would be no proof.
        session.coverage.note("locating: parameters are spread over ranks, and such an update is not replayed")
        return None
    return _Incident(session, update, verdict, case).locate()


def wants_locating() -> bool:
    """FIRSTBAD_LOCATE=none, and `locate` in FIRSTBAD_OFF, turn it off."""
    off = [word.strip() for word in os.environ.get("FIRSTBAD_OFF", "").split(",")]
    return "locate" not in off and os.environ.get("FIRSTBAD_LOCATE", "all") not in ("none", "off")


def keeps_bundles() -> bool:
    """FIRSTBAD_LOCATE says "bundle" or "all"; the default is all."""
    words = [word.strip() for word in (os.environ.get("FIRSTBAD_LOCATE") or "all").split(",")]
    return "all" in words or "bundle" in words


def parts_asked() -> int:
    """FIRSTBAD_LOCATE as bits; 0 where only a bundle or nothing is wanted."""
    given = os.environ.get("FIRSTBAD_LOCATE") or "all"
    bits = 0
    for word in given.split(","):
        bits |= _PARTS.get(word.strip(), 0)
    return bits


# ---- names -----------------------------------------------------------------------------------------------------------------------


def names_of(program: Program, known: Optional[Dict[int, Tuple[str, str]]] = None, scalers: Sequence[Any] = ()) -> Names:
    """Parameters, buffers and gradients of the roots under their paths. known: names of leaves that belong to no root."""
    state: List[Tuple[torch.Tensor, str, str, int]] = []
    gradients: List[Tuple[torch.Tensor, str, str]] = []
    seen = set()
    moved = {id(live) for live, _ in program.buffers}
    for prefix, root in program.roots:
        if not isinstance(root, torch.nn.Module):
            continue
        for name, parameter in root.named_parameters():
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            module, last = _place(prefix, name)
            module, last = (known or {}).get(id(parameter), (module, last))
            state.append((parameter, module, last, abi.TAPE_STATE))
            if parameter.requires_grad:
                gradients.append((parameter, module, last))
        for name, buffer in root.named_buffers():
            if id(buffer) in seen or buffer.device.type == "meta":
                continue
            seen.add(id(buffer))
            module, last = _place(prefix, name)
            # A buffer that forward never moves was made by the program's author: a mask of -Inf is meant.
            state.append((buffer, module, last, abi.TAPE_STATE | (0 if id(buffer) in moved else abi.TAPE_MASK)))
    for number, external in enumerate(program.externals):
        if external.live() and id(external.tensor) not in seen:
            seen.add(id(external.tensor))
            module, last = (known or {}).get(id(external.tensor), ("", external.name or f"leaf{number}"))
            state.append((external.tensor, module, last, abi.TAPE_STATE))
            gradients.append((external.tensor, module, last))
    scalars = [(scale, "loss_scale") for scale in (getattr(s, "_scale", None) for s in scalers) if isinstance(scale, torch.Tensor)]
    return Names(state, gradients, scalars)


def loose_leaves(names: Names, known: Dict[int, Tuple[str, str]]) -> List[Tuple[torch.Tensor, str, str]]:
    """(leaf, module, name) of what optimizers own and no root has."""
    told = {id(leaf) for leaf, _, _ in names.gradients}
    return [(leaf, *known[id(leaf)]) for optimizer in registry.optimizers.alive() for group in optimizer.param_groups
            for leaf in group["params"] if id(leaf) in known and id(leaf) not in told]


def _place(prefix: str, name: str) -> Tuple[str, str]:
    path, _, last = name.rpartition(".")
    path = clean(path)
    return (f"{prefix}.{path}" if prefix and path else prefix or path), last


def precision_of(program: Optional[Program], optimizer: Optional[torch.optim.Optimizer] = None) -> str:
    """"fp16", "bf16" or "fp32": the narrowest format that the update computed in."""
    dtypes = set()
    if program is not None:
        for step in program.steps:
            if isinstance(step, RootCall):
                dtypes |= {dtype for _, enabled, dtype in step.autocast.devices if enabled}
        for _, root in program.roots:
            if isinstance(root, torch.nn.Module):
                dtypes |= {parameter.dtype for parameter in root.parameters()}
        dtypes |= {external.tensor.dtype for external in program.externals}
    for group in optimizer.param_groups if optimizer is not None else ():
        dtypes |= {leaf.dtype for leaf in group["params"]}
    return "fp16" if torch.float16 in dtypes else "bf16" if torch.bfloat16 in dtypes else "fp32"


# ---- the finding -----------------------------------------------------------------------------------------------------------------


def group_of(session: Any) -> Group:
    """The ranks of a session. Where they have no group each replays for itself: max_ints is then None though world is above 1."""
    ranks = getattr(session, "ranks", None)
    world = int(getattr(session, "world", 1))
    if world == 1:
        return Group()
    return Group(int(session.rank), world, getattr(ranks, "max_ints", None), getattr(ranks, "group", None))


TEXT_MAX = 512


def finding_of(folder: str, verdict: Any, ranks: Group) -> Optional[Finding]:
    """first_bad.json of the case, read by the rank that wrote it and told to the others; None where there is none."""
    fields = [-1] * (5 + TEXT_MAX)
    alone = ranks.max_ints is None
    if alone or ranks.rank == max(int(verdict.first_rank), 0):
        try:
            with open(os.path.join(folder, "first_bad.json"), encoding="utf-8") as file:
                found = json.load(file)
            text = f"{found['module']}\0{found['tensor']}".encode()[:TEXT_MAX]
            fields[:5] = [int(found["rank"]), _BOUNDARIES[found["boundary"]], int(found["micro_step"]),
                          _KINDS.get(str(found["kind"]), 0), int(bool(found.get("injected")))]
            fields[5:5 + len(text)] = list(text)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # a disk that is full keeps no case: all ranks hear of it below, and nothing is named
    if ranks.max_ints is not None:
        fields = [int(value) for value in ranks.max_ints(fields)]
    if fields[0] < 0:
        return None
    module, _, tensor = bytes(value for value in fields[5:] if value >= 0).decode("utf-8", "replace").partition("\0")
    return Finding(ranks.rank if alone else fields[0], fields[1], fields[2], fields[3], module, tensor, bool(fields[4]))


# ---- one incident ----------------------------------------------------------------------------------------------------------------


class _Incident:
    def __init__(self, session: Any, update: Any, verdict: Any, case: str) -> None:
        self.session, self.update, self.verdict, self.case = session, update, verdict, case
        self.ranks = group_of(session)
        self.run_folder = _native.text(_native.lib().fb_run_folder(session.run))
        self.folder = os.path.join(self.run_folder, "cases", case)
        self.program: Optional[Program] = None
        self.differences: List[str] = []
        self.fill = 0.0
        self.sentence = ""  # why it cannot be replayed
        self.names: Optional[Names] = None
        self.rows_matter = False

    def locate(self) -> Optional[Located]:
        finding = finding_of(self.folder, self.verdict, self.ranks)
        if finding is None:
            return None
        self.program = self.session.recorder.finish()
        if finding.kind == abi.KIND_OUT_OF_RANGE and not any(isinstance(step, Backward) for step in self.program.steps):
            return None  # torch refuses it, so that there is nothing to replay; the check has said which row and which value
        before = _fingerprint(self.program)
        try:
            again, finding = self._prepare(finding)
            if again is None:
                return None
            located = self._run(again, finding)
        finally:
            changed = [name for name, value in _fingerprint(self.program).items() if before.get(name) != value]
            if changed:
                raise FirstbadError(f"a replay changed {changed[0]}, which must never be: locating is off from here on")
        self._note(located)
        return located

    # What is replayed.

    def _prepare(self, finding: Finding) -> Tuple[Any, Finding]:
        assert self.program is not None
        if finding.boundary == abi.UPDATE:
            return self._of_update(finding)
        self.differences += self.program.differences
        self.differences += [f"{name} was changed in place after forward had read it" for name in self.program.changed()]
        alone = self.ranks.world > 1 and self.ranks.max_ints is None
        if alone:
            self.differences.append("the other ranks took no part in the replay")
        names = names_of(self.program, getattr(self.session, "gradient_names", None), getattr(self.session, "scalers", ()) or ())
        one = Rehearsal(self.program, names, self.ranks, finding, [loss.tensor for loss in getattr(self.update, "losses", ())],
                        loose_leaves(names, getattr(self.session, "gradient_names", None) or {}),
                        getattr(self.update, "changed_since_backward", lambda leaf: False))
        self._keep(names, finding)
        shown = one.rehearse()
        self.fill, self.names = one.fill, names
        self.rows_matter = bool(shown) and one.rows_matter()
        self.differences += one.differences
        if alone and not shown:
            # Another rank's, or of what the ranks did together: one rank's replay says nothing of it, and not that it went away.
            self.session.coverage.note("locating: the ranks take no part in each other's replays here, and this rank's own did not "
                                       "show what was found")
            return None, finding
        return one.again, one.finding

    def _of_update(self, finding: Finding) -> Tuple[Any, Finding]:
        known = getattr(self.session, "gradient_names", None) or {}
        held = list(getattr(self.update, "held", None) or ()) or [
            Held(optimizer, {id(leaf): known[id(leaf)] for group in optimizer.param_groups for leaf in group["params"]
                             if id(leaf) in known}, source.caller()) for optimizer in registry.optimizers.alive()]
        for one in held:
            for module, name in one.names.values():
                if module == finding.module and (finding.tensor == name or finding.tensor.startswith(f"{name}.")):
                    self.differences.append("the optimizer ran its plain form, one tensor after another")
                    return UpdateReplay(one, finding.micro), finding
        self.sentence = "the state before the update was not kept, so the optimizer cannot step again"
        return _Never(self.sentence), finding

    # What is kept.

    def _keep(self, names: Names, finding: Finding, located: Optional[Located] = None, locator: Optional[Locator] = None) -> None:
        """The bundle; with `located` the one of the smallest batch. A disk that is full is told, and hinders nothing."""
        if not keeps_bundles() or self.program is None:
            return
        alone = self.ranks.max_ints is None
        if alone and self.ranks.world > 1:
            return  # a bundle is sealed when all ranks have written, and nobody knows when that is
        folder = os.path.join(self.folder, "bundle-min" if located is not None else "bundle")
        samples = self._samples(finding.micro)
        instead = None
        if located is not None and locator is not None:
            if self.ranks.rank == located.rows_rank:
                keep = None if located.keep is None else torch.tensor(located.keep, dtype=torch.bool).reshape(len(located.rows), -1)
                instead = smaller.without(self.program, locator.batch, located.rows, keep)
                samples = [samples[row] for row in located.rows] if samples is not None else None
        failed = 0
        try:
            bundle.write(folder, self.program, names, finding, rank=self.ranks.rank, world=self.ranks.world,
                         run_id=os.path.basename(self.run_folder), case=self.case, step=int(self.verdict.step),
                         precision=precision_of(self.program), samples=samples, instead=instead,
                         losses=[loss.tensor for loss in getattr(self.update, "losses", ())])
        except LibraryError as why:
            failed = 1
            sys.stderr.write(f"firstbad: rank {self.ranks.rank}: no bundle was kept: {why}\n")
        if self.ranks.max_ints is not None:
            failed = int(self.ranks.max_ints([failed])[0])
        if not failed and self.ranks.rank == 0:
            try:
                bundle.seal(folder, self.ranks.world)
            except LibraryError as why:
                sys.stderr.write(f"firstbad: the bundle was not sealed: {why}\n")

    # What is concluded.

    def _run(self, again: Any, finding: Finding) -> Located:
        assert self.program is not None
        update_only = isinstance(again, (UpdateReplay, _Never))
        seconds = float(os.environ.get("FIRSTBAD_LOCATE_SECONDS") or 300)
        locator = Locator(again, None if update_only else self.program, self.ranks, finding.micro, seconds, self.fill,
                          self.rows_matter)
        number = int(self.verdict.step)
        first = getattr(self.session, "first_step", None)
        attempt = 0 if first is None or number != first else 2 if getattr(self.session, "resumed", False) else 1
        optimizer = again.held.optimizer if isinstance(again, UpdateReplay) else None

        def text(config: abi.LocateConfig, result: abi.LocateResult) -> str:
            return self._text(config, result, finding, locator)

        parts = parts_asked() or abi.LOCATE_REPLAY
        if self.ranks.max_ints is None and self.ranks.world > 1:
            parts &= ~abi.LOCATE_OTHER_RANK
        located = locator.run(
            finding, parts=parts, strategy=strategy_asked(), folder=self.folder,
            precision=precision_of(self.program, optimizer), step=number, first_step_of_attempt=attempt,
            sample_ids=self._samples(finding.micro), differences=list(dict.fromkeys(self.differences)),
            run_id=os.path.basename(self.run_folder), case_id=self.case, words=text)
        if located.rows and self.names is not None and not update_only:
            fewer = int(self.ranks.rank == located.rows_rank and len(located.rows) < locator.batch.rows)
            if self.ranks.max_ints is not None:
                fewer = int(self.ranks.max_ints([fewer])[0])  # only the rank whose rows they are knows how many there were
            if fewer:
                self._keep(self.names, finding, located, locator)
        if locator.sentences and located.found in ("undecided", "interval", "nothing"):
            located.note = "; ".join([located.note] * bool(located.note) + locator.sentences)
        return located

    def _samples(self, micro: int) -> Optional[Sequence[int]]:
        of_inputs = getattr(getattr(self.session, "inputs", None), "samples", None)  # by micro-step, as the loader gave them
        samples = of_inputs if isinstance(of_inputs, dict) and of_inputs else getattr(self.update, "samples", None)
        if samples is None:
            return None
        of_micro = samples.get(micro) if isinstance(samples, dict) else samples[micro] if samples and isinstance(
            samples[0], (list, tuple)) and micro < len(samples) else samples
        if of_micro is None or any(not isinstance(sample, int) for sample in of_micro):
            return None
        return list(of_micro)

    def _text(self, config: abi.LocateConfig, result: abi.LocateResult, finding: Finding, locator: Locator) -> str:
        said = saying.words_of(self.verdict, finding.rank, self.ranks.world, self.run_folder,
                               getattr(self.session, "max_skips", 3), bool(getattr(self.update, "held", None)),
                               str(getattr(self.update, "ended", "")))
        return text_of(config, result, said, self.ranks.rank, result.nanoseconds / 1e9)

    def _note(self, located: Located) -> None:
        speaker = located.owner if 0 <= located.owner < self.ranks.world else int(self.verdict.first_rank)
        if self.ranks.max_ints is None or self.ranks.rank == max(speaker, 0):
            _native.call(_native.lib().fb_run_note_located, self.session.run, self.case.encode(), located.sentence.encode())


class _Never:
    """A replay that cannot be made: the library hears it, and writes it down."""

    unwritten = 0

    def __init__(self, why: str) -> None:
        self.why = why

    def run(self, *_: Any) -> None:
        raise Unsupported(self.why)


def text_of(config: abi.LocateConfig, result: abi.LocateResult, said: saying.Words, rank: int, seconds: float) -> str:
    """The block for a person, of at most 100 columns."""
    given = abi.LocateWords.new(rank=rank, headline=said.headline, spread=said.spread, next=said.next, case_line=said.case_line,
                                seconds=seconds)
    size = ctypes.c_size_t(1 << 14)
    buffer = ctypes.create_string_buffer(size.value)
    _native.call(_native.lib().fb_locate_text, ctypes.byref(config), ctypes.byref(result), ctypes.byref(given), buffer,
                 ctypes.byref(size))
    return buffer.value.decode("utf-8", "replace")


def strategy_asked() -> int:
    return abi.LOCATE_BISECT if os.environ.get("FIRSTBAD_STRATEGY") == "bisect" else abi.LOCATE_SWEEP


def _fingerprint(program: Program) -> Dict[str, Any]:
    """A checksum of parts of all that a replay could spoil: parameters, buffers, gradients, the batch, torch's random stream."""
    found: Dict[str, Any] = {"the random stream": hash(torch.get_rng_state().numpy().tobytes()) if "numpy" in sys.modules
                             else tuple(torch.get_rng_state()[:64].tolist())}
    for prefix, root in program.roots:
        if not isinstance(root, torch.nn.Module):
            continue
        for name, tensor in list(root.named_parameters()) + list(root.named_buffers()):
            found[f"{prefix}.{name}".strip(".")] = (tensor.dtype, digest_of(tensor.detach()))
            if tensor.grad is not None:
                found[f"{prefix}.{name}.grad".strip(".")] = (id(tensor.grad), digest_of(tensor.grad.detach()))
    for number, external in enumerate(program.externals):
        found[external.name or f"external {number}"] = digest_of(external.tensor.detach())
    return found
