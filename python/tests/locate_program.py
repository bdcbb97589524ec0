"""A model that can be replayed on the tape, and fb_locate_run over it: replays, reruns in FP64, wider formats, smaller batches."""
import ctypes
import typing

import torch

from locate_structs import (AGAIN, BATCH, E_UNSUPPORTED, E_USAGE, FORWARD, FOUND, LOCAL_GRAD, LOSS, MASK, OK, OTHER, PRECISION,
                            RERUN_FN, REPLAY_FN, RULES, SCALAR, SMALLER, STATE, SWEEP, UPDATE, Config, Error, Result)
from locate_tape import Tape, again, doubles


class Program:
    """One step of a model that can be replayed: model(**batch) gives the loss; update(model) is the optimizer, if there is one.

    rows: the batch can be made smaller by indexing the first dimension of each of its tensors.
    """

    def __init__(self, model, batch, update=None, rows=0, scalars=None):
        self.model, self.batch, self.update, self.rows = model, batch, update, rows
        self.scalars = scalars or {}
        self.state = {name: t.clone() for name, t in model.state_dict().items()}
        self.stack, self.of_sequence, self.phase, self.tape = [], {}, "forward", None
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda _m, _a, name=name: self.stack.append(name))
            module.register_forward_hook(lambda _m, _a, _o: self.leave(), always_call=True)

    # Where it stands.

    def leave(self):
        self.stack.pop()  # and returns nothing: what a hook returns takes the place of the output

    def node(self):
        """The autograd node that runs, by its name; None outside of backward."""
        node = torch._C._current_autograd_node() if self.phase == "backward" else None
        return node.name() if node is not None else None

    def module(self):
        if self.phase == "update":
            return "optimizer"
        node = torch._C._current_autograd_node() if self.phase == "backward" else None
        if node is not None and not self.stack:
            return self.of_sequence.get(node._sequence_nr(), "")
        name = self.stack[-1] if self.stack else ""
        # The node that this operator will have in backward was made just before it came here.
        self.of_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, name)
        return name

    def boundary(self, module):
        if self.phase == "update":
            return UPDATE
        if self.phase == "backward" and not self.stack:
            return LOCAL_GRAD
        return LOSS if module.split(".")[-1].startswith("loss") else FORWARD

    # Running.

    def restore(self):
        with torch.no_grad():
            for name, t in self.model.state_dict().items():
                t.copy_(self.state[name])
        for p in self.model.parameters():
            p.grad = None
        self.stack, self.of_sequence, self.phase = [], {}, "forward"
        torch.manual_seed(11)

    def some_batch(self, rows):
        """A row that is left out is taken by another that is kept: shapes, places and random numbers stay those they were.

        With fewer rows torch would run other operators (a reshape is a view or a copy), and the replay could not be looked at.
        """
        if rows is not None:
            rows = torch.tensor([row if row in rows else rows[0] for row in range(self.rows)])
        return {name: (t if rows is None else t[rows]).clone() for name, t in self.batch.items()}

    def step(self, batch, mode=None, site=None):
        """site(name, tensor, module, boundary) is called for all that a guard would look at. Returns them, and which are finite."""
        watched = []

        def watch(name, tensor, module, boundary):
            watched.append((name, module, boundary, bool(torch.isfinite(tensor).all())))
            if site:
                site(name, tensor, module, boundary)

        def owner(name):
            return name.rsplit(".", 1) if "." in name else ("", name)

        def inside(run):
            if mode is None:
                return run()
            with mode:
                return run()

        loss = inside(lambda: self.model(**batch))
        watch("loss", loss.detach(), "loss", LOSS)
        self.phase = "backward"
        if loss.requires_grad:
            inside(loss.backward)
        for name, p in self.model.named_parameters():
            module, last = owner(name)
            if p.grad is not None:
                watch(last + ".grad", p.grad, module, LOCAL_GRAD)
        self.phase = "update"
        if self.update:
            with torch.no_grad():
                inside(lambda: self.update(self.model))
            for name, p in self.model.named_parameters():
                module, last = owner(name)
                watch(last, p.detach(), module, UPDATE)
        return watched

    def finding(self):
        self.restore()
        watched = self.step(self.some_batch(None))
        self.restore()
        return next((place for place in watched if not place[3]), None)


class Locator:
    """fb_locate_run over one program."""

    def __init__(self, lib, program, wider=None):
        self.lib, self.program, self.wider = lib, program, wider
        self.tape, self.failure = None, None

    def listen(self, handle, program, rows):
        program.restore()
        self.tape = tape = Tape(self.lib, handle, program)
        names = {id(p) for p in program.model.parameters()}
        for name, t in list(program.model.named_parameters()) + list(program.model.named_buffers()):
            module, _, last = name.rpartition(".")
            flags = STATE | (0 if id(t) in names else MASK if "mask" in last else 0)
            tape.entry(t.detach(), module, last, flags)
        batch = program.some_batch(rows)
        for name, t in batch.items():
            tape.entry(t, "batch", name, BATCH | (MASK if "mask" in name else 0))
        for name, t in program.scalars.items():
            tape.entry(t, "", name, SCALAR | STATE)
        try:
            program.step(batch, tape, tape.site)
        finally:
            program.restore()

    def replay(self, _ctx, handle, request, err):
        request = request.contents
        program, rows = self.program, None
        if request.purpose == OTHER or request.keep or (request.purpose == SMALLER and not program.rows):
            return E_UNSUPPORTED
        if request.purpose == PRECISION:
            if self.wider is None:
                return E_UNSUPPORTED
            program = self.wider()
        if request.rows:
            rows = list(request.rows[:request.row_count])
        try:
            self.listen(handle, program, rows)
        except Exception as failure:  # the step itself may raise, as an embedding does for a token that it has not
            self.failure = failure
            err.contents.message = str(failure).encode()[:1000]
            return self.tape.error or E_USAGE
        if request.purpose == AGAIN:
            self.kept, self.nodes = self.tape.kept, self.tape.nodes
        return OK

    def rerun(self, _ctx, rerun, err):
        rerun = rerun.contents
        kept = self.kept[rerun.token]
        try:
            inputs = [doubles(rerun.inputs[i], rerun.input_counts[i]).clone() for i in range(rerun.input_count)]
            outputs = again(kept, inputs)
        except Exception as failure:
            err.contents.message = str(failure).encode()[:1000]
            return E_UNSUPPORTED
        if outputs is None or len(outputs) != rerun.output_count or any(t.is_complex() for t in outputs):
            return E_UNSUPPORTED
        for i, t in enumerate(outputs):
            if t.numel() != rerun.output_counts[i]:
                return E_UNSUPPORTED
            if t.numel():
                doubles(rerun.outputs[i], rerun.output_counts[i]).copy_(t.reshape(-1))
        return OK

    def run(self, finding, strategy=SWEEP, probes_max=0, folder=None, kind=0):
        name, module, boundary = finding[:3]
        config, result, err = Config(), Result(), Error()
        config.size, result.size = ctypes.sizeof(Config), ctypes.sizeof(Result)
        config.world, config.finding_boundary, config.finding_kind = 1, boundary, kind
        config.finding_module, config.finding_tensor = module.encode(), name.encode()
        config.strategy, config.probes_max, config.step, config.rows = strategy, probes_max, 412, self.program.rows
        config.folder = str(folder).encode() if folder else None
        formats = {t.dtype for t in list(self.program.state.values()) + list(self.program.batch.values())}
        config.precision = b"fp16" if torch.float16 in formats else b"bf16" if torch.bfloat16 in formats else b"fp32"
        config.replay, config.rerun = REPLAY_FN(self.replay), RERUN_FN(self.rerun)
        status = self.lib.fb_locate_run(ctypes.byref(config), ctypes.byref(result), ctypes.byref(err))
        if status != OK:
            raise RuntimeError(err.message.decode())
        found = Located(FOUND[result.found], result.op.decode(), result.module.decode(), result.source.decode(), result.boundary,
                        RULES[result.rule], result.cause_class.decode(), result.sentence.decode(), result.reproduced, result.tried,
                        bool(result.faithful), result.persists,
                        list(result.rows[:result.rows_needed]) if result.rows_needed else [], result.candidates,
                        result.replays, result.later, err.message.decode(), result.node.decode(), result.rows_alone)
        self.lib.fb_locate_release(ctypes.byref(result))
        return found


class Located(typing.NamedTuple):
    found: str
    op: str
    module: str
    source: str
    boundary: int
    rule: str
    cause: str
    sentence: str
    reproduced: int
    tried: int
    faithful: bool
    persists: int
    rows: list
    candidates: int
    replays: int
    later: int
    message: str
    node: str
    rows_alone: int

    def same_as(self, other):
        return self[:7] == other[:7] and self.rows == other.rows
