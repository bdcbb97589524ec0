"""Record an update while it runs: see program.py. Called by the session around roots and backwards.

Inside of roots nothing is recorded: a replay calls the root again. Between them a light TorchDispatchMode writes down each
operator. It costs some 10 us an operator, and is not there during root forwards, backward, the optimizer and compiled code.
"""
from __future__ import annotations

import os
import sys
import threading
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from . import loader, randomness, source, trees
from .program import (Backward, External, InnerGrad, Program, Ref, Require, RootCall, Step, TailOp, autocast_now, digest_of,
                      forward_of, input_names, live_steps, name_externals, plain_module, version_of)
from .tail import Tail, Values, about, copy_of, flat

OPS_MAX = 512  # operators of the tail in one update; beyond that it is given up
OPS_UNTRACKED_MAX = 128  # of them with gradients off; beyond that their results are taken as they are
COPY_MAX = 64 << 20  # bytes of a tensor that is copied because the tail writes into it


def replay_wanted() -> bool:
    """`firstbad replay` or `firstbad bisect` started this process."""
    return bool(os.environ.get("FIRSTBAD_REPLAY"))


def _swapped(module: Any) -> bool:
    """A root that is about to run with parameters put in for this call, which a replay would not have: by torch.func's
    functional_call, or by whoever computed its first parameter."""
    if not isinstance(module, torch.nn.Module):
        return False
    first = next(module.parameters(), None)
    if first is not None and first.grad_fn is not None:
        return True
    frame: Any = sys._getframe(1)
    for _ in range(16):
        if frame is None:
            break
        if frame.f_code.co_name == "_functional_call" and frame.f_globals.get("__name__") == "torch.nn.utils.stateless":
            return True
        frame = frame.f_back
    return False


_saved_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def _around() -> str:
    """What the program has put around a call that changes what it computes, and that a replay does not have; "": nothing. What
    torch itself puts there, to keep activations elsewhere say, changes no number."""
    hooks = _saved_hooks(False) if _saved_hooks is not None else None
    if hooks is not None and not (getattr(hooks[0], "__module__", None) or "").startswith("torch."):
        return "saved_tensors_hooks of the program"
    for what, stack in (("function", _get_current_function_mode_stack()), ("dispatch", _get_current_dispatch_mode_stack())):
        for kind in map(type, stack):
            if not kind.__module__.startswith(("torch.", "firstbad.")):
                return f"a {what} mode of its own ({kind.__name__})"
    return ""


class Recorder:
    """One update at a time.

    problems: why what was recorded so far cannot be replayed, one sentence each; empty: it can.
    `session` is asked for `scalers` (GradScalers in use) if it has them, and for nothing else.
    """

    def __init__(self, session: Any = None, tail: bool = True) -> None:
        self.session = session
        self.tail_wanted = tail
        self.learned: Set[Tuple[int, str]] = set()  # (root, input) that forward writes into: copied before it from then on
        self.mode = Tail(self)
        self._clear()

    def _clear(self) -> None:
        self.steps: List[Step] = []
        self.externals: List[External] = []
        self.known: Dict[int, int] = {}  # id of an external -> its number
        self.values = Values()
        self.problems: List[str] = []
        self.differences: List[str] = []
        self.buffers: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self.roots: List[Tuple[str, Any]] = []
        self.micro = 0
        self.after_backward = False
        self.call: Optional[RootCall] = None
        self.watched: List[Tuple[str, torch.Tensor, int]] = []
        self.ops = self.untracked = 0
        self.tail_off = not self.tail_wanted
        self.thread = threading.get_ident()
        self.required: Set[int] = set()
        self.made_untracked: Set[int] = set()
        self.seen_gradients = False
        self.between = False  # after a backward, before the next forward: the next batch is made here

    # ---- what the session calls --------------------------------------------------------------------------------------------------

    def root_enter(self, root: Any, name: str, args: Any, kwargs: Any, rng: Optional[randomness.RngState] = None,
                   buffers: Sequence[Tuple[torch.Tensor, torch.Tensor]] = ()) -> None:
        """A root is about to run. rng: randomness.capture() of now; None: it is taken here. buffers: (live, copy) of those that its
        forward is known to change, as they are now. Cost: 20-60 us and a checksum of each input."""
        self.pause()
        if replay_wanted():
            from . import replay_child
            replay_child.at_root(root)
        if self.after_backward:
            self.micro, self.after_backward = self.micro + 1, False
        if not self.steps:
            self.thread = threading.get_ident()
        elif threading.get_ident() != self.thread:
            return self._problem("several threads run parts of one update")
        if not any(known is root for _, known in self.roots):
            self.roots.append((name, root))
            self.buffers += [(live, copy) for live, copy in buffers if not any(live is known for known, _ in self.buffers)]
        if rng is None:
            rng = randomness.capture() if not self.steps else randomness.RngState(
                torch.get_rng_state(), randomness.capture().devices if torch.cuda.is_initialized() else (), None, None)
        names = input_names(plain_module(root)) if args else []
        given = [(names[i] if i < len(names) else f"input{i}", arg) for i, arg in enumerate(args)] + list(kwargs.items())
        paths: Dict[int, str] = {}
        for path, argument in given:
            for at, tensor in trees.walk(argument, path):
                paths.setdefault(id(tensor), at)
        self.watched = []
        values: Dict[int, str] = {}

        def refer(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            at = paths.get(id(leaf), "")
            ref = self._refer(leaf, at, True)
            if ref.external:
                external = self.externals[ref.number]
                if (id(root), at) in self.learned and external.before is None:
                    external.before = copy_of(leaf)
                self.watched.append((at, leaf, version_of(leaf)))
            else:
                values.setdefault(ref.number, at)
            return ref

        module = plain_module(root)
        if _swapped(module):
            self._problem("the module ran with parameters that are not its own (functional_call)")
        around = _around()
        if around:
            self._problem(f"the program ran a module within {around}")
        training = tuple(m.training for m in module.modules()) if isinstance(module, torch.nn.Module) and not self.steps else ()
        self.call = RootCall(root, name, trees.rebuild(tuple(args), refer), trees.rebuild(dict(kwargs), refer), self.micro, rng,
                             autocast_now(), torch.is_grad_enabled(), training, source.caller(), paths=values,
                             forward=forward_of(root))
        self.steps.append(self.call)

    def root_exit(self, outputs: Any) -> None:
        """The root that was entered has returned `outputs`."""
        call, self.call = self.call, None
        if call is None:
            return
        for at, tensor, version in self.watched:
            if version_of(tensor) != version and (id(call.root), at) not in self.learned:
                self.learned.add((id(call.root), at))
                self._problem(f"forward writes into its own input {at}, which is copied from the next update on")
        self.watched = []
        call.outputs = [self.values.made(tensor, tensor.requires_grad) for tensor in trees.tensors(outputs)]
        call.finished = True
        self.between = False
        self.resume()

    def backward_enter(self, tensors: Any, grads: Any = None, kwargs: Optional[Dict[str, Any]] = None,
                       losses: Any = None) -> None:
        """backward begins at `tensors` with seeds `grads` (None: 1). losses: the same before a GradScaler multiplied them."""
        self.pause()
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        grads = [grads] if isinstance(grads, torch.Tensor) or grads is None else list(grads)
        grads += [None] * (len(tensors) - len(grads))
        options = dict(kwargs or {})
        inputs = options.pop("inputs", None)
        options = {key: options[key] for key in ("retain_graph", "create_graph") if options.get(key) is not None}
        if not self.steps:
            self._problem("backward ran, and no forward of a module was seen before it")
        self._gradients_before()
        refs = [self._refer(tensor, "loss", False) for tensor in tensors]
        for ref, tensor in zip(refs, tensors):
            if ref.external and not tensor.is_leaf:
                self._problem("the loss came from code that could not be followed")
        known = [losses] if isinstance(losses, torch.Tensor) else list(losses or [])
        unscaled = [self._refer(tensor, "loss", False) for tensor in known] or [self._before_scale(ref) for ref in refs]
        self.steps.append(
            Backward(
                refs,
                [None if g is None else self._refer(g, "gradient", False) for g in grads],
                (
                    None
                    if inputs is None
                    else [self._refer(t, "", False) for t in ([inputs] if isinstance(inputs, torch.Tensor) else inputs)]
                ),
                options,
                unscaled,
                self.micro,
                source.caller(),
            )
        )
        self.after_backward = True

    def backward_exit(self) -> None:
        """It is over. Only where the graph was kept can what comes now lead to a second one without a forward before it; else what
        is computed until then is taken as it is: the next batch, mostly."""
        self.between = True
        last = self.steps[-1] if self.steps else None
        if isinstance(last, Backward) and (last.options.get("retain_graph") or last.options.get("create_graph")):
            self.resume()

    def grad_enter(self, outputs: Any, inputs: Any, grad_outputs: Any = None, kwargs: Optional[Dict[str, Any]] = None) -> None:
        """torch.autograd.grad is about to run."""
        self.pause()
        options = {key: value for key, value in (kwargs or {}).items() if key in ("retain_graph", "create_graph", "allow_unused")}
        if not self.steps:
            return
        self._inner = InnerGrad(self._refer_all(outputs), self._refer_all(inputs), self._refer_all(grad_outputs), options, [],
                                self.micro, source.caller())
        self.steps.append(self._inner)

    def grad_exit(self, results: Any) -> None:
        """It returned `results`."""
        if self.steps and isinstance(self.steps[-1], InnerGrad):
            self.steps[-1].results = [None if t is None else self.values.made(t, t.requires_grad) for t in results]
        self.resume()

    def hooked(self, tensor: torch.Tensor) -> None:
        """The program put a hook on this one. On what a replay makes anew it is not."""
        if not isinstance(tensor, torch.nn.Parameter) and self.values.find(tensor) is not None:
            self._problem("the program has a hook on a tensor outside of its modules")

    def pause(self) -> None:
        """Operators from here on are not part of the program. Costs nothing where nothing is recorded."""
        self.mode.on = False
        if not self.mode.pushed:
            return
        stack = _get_current_dispatch_mode_stack()
        if stack and stack[-1] is self.mode:
            self.mode.pushed = False
            self.mode.__exit__(None, None, None)
        # else somebody's own mode lies on ours: it stays below, passing on, until its turn comes.

    def resume(self) -> None:
        """Go on recording operators, where there is an update and nothing stands against it."""
        if self.mode.on or self.tail_off or not self.steps:
            return
        stack = _get_current_dispatch_mode_stack()
        if self.mode.pushed and any(mode is self.mode for mode in stack):
            self.mode.on = True  # it was left below another mode
            return
        if stack:
            self._problem("the program has a dispatch mode of its own around its loss")
            self.tail_off = True
            return
        self.mode.on = self.mode.pushed = True
        self.mode.__enter__()

    def cleared(self) -> None:
        """The program took away all gradients that it has made so far: its backwards are no part of the update any more."""
        self.steps = [step for step in self.steps if not isinstance(step, Backward)]

    def made(self) -> List[Ref]:
        """Everything that was computed outside of the roots, and what the roots gave out, in order."""
        return [Ref(False, number) for step in self.steps if isinstance(step, (RootCall, TailOp)) for number in step.outputs
                if number >= 0]

    def ended(self, ref: Ref) -> None:
        """The program ended before a backward; this is what its update came to."""
        self.steps.append(Backward([], [], None, {}, [ref], self.micro, None))

    def finish(self, told: Sequence[Ref] = ()) -> Program:
        """What was recorded. The recorder goes on holding it until `drop`. told: values that are losses of this Program alone, of
        an update that has none."""
        self.pause()
        problems = list(dict.fromkeys(self.problems))
        if not any(isinstance(step, RootCall) for step in self.steps):
            problems.append("no forward of a module was seen in this update")
        if any(isinstance(step, RootCall) and not step.finished for step in self.steps):
            problems.append("a forward of this update did not return")
        memory = [self.values.place(e.tensor) for e in self.externals]
        for written, place in zip(self.externals, memory):
            if written.written and place is not None and sum(1 for other in memory if other and other[0] == place[0]) > 1:
                problems.append("the loss writes into a tensor that shares its memory with another")
        steps = live_steps([*self.steps, *([Backward([], [], None, {}, list(told), self.micro, None)] if told else [])])
        name_externals(steps, self.externals)
        roots = [(name, plain_module(root)) for name, root in self.roots]
        if any(root is not plain for (_, root), (_, plain) in zip(self.roots, roots)):
            for _, root in self.roots:
                if hasattr(root, "_orig_mod") or hasattr(getattr(root, "module", None), "_orig_mod"):
                    self.differences.append("compiled code ran eagerly")
        if any(getattr(plain, "_compiled_call_impl", None) is not None for _, plain in roots):
            self.differences.append("compiled code ran eagerly")
        return Program(steps, list(self.externals), self.values.count, problems, list(dict.fromkeys(self.differences)),
                       list(self.buffers), roots, self.micro)

    def drop(self) -> None:
        """Forget the update; nothing of it is referred to afterwards."""
        self.pause()
        self._clear()

    # ---- inside ------------------------------------------------------------------------------------------------------------------

    def _problem(self, sentence: str) -> None:
        if sentence not in self.problems:
            self.problems.append(sentence)

    def _refer(self, tensor: torch.Tensor, name: str, batch: bool) -> Ref:
        number = None if self._is_itself(tensor) else self.values.find(tensor)
        if number is not None and self.values.tracks(tensor, number):
            # Its history was cut off while nothing was recorded: a hidden state that is handed on, say.
            step = TailOp(
                torch.ops.aten.detach.default,
                (Ref(False, number),),
                {},
                [self.values.made(tensor, False)],
                [],
                self.micro,
                False,
                source.caller(),
            )
            self.steps.append(step)
            return Ref(False, step.outputs[0])
        if number is not None:
            self._require(tensor, number)
            return Ref(False, number)
        at = self.known.get(id(tensor))
        # One that was filled anew in between is another tensor, and what it held before is lost: `changed` will say so.
        if at is not None and (self.externals[at].written or self.externals[at].version == version_of(tensor)):
            known = self.externals[at]
            known.name, known.batch = known.name or name, known.batch or batch
            return Ref(True, at)
        if tensor.grad_fn is not None:
            self._problem("a tensor with a gradient came from code that could not be followed"
                          + (f" (input {name})" if name else ""))
        external = External(tensor, version_of(tensor), digest_of(tensor), name, self.micro, batch,
                            given=not tensor.is_floating_point() or loader.gave(tensor))
        self.known[id(tensor)] = len(self.externals)  # the list holds the tensor, so that its id stays its own
        self.externals.append(external)
        return Ref(True, len(self.externals) - 1)

    def _is_itself(self, tensor: torch.Tensor) -> bool:
        """A tensor of the program's own, though `detach` or a view of it made a value that lies in the same place."""
        if self.values.made_object(tensor):
            return False
        at = self.known.get(id(tensor))
        return isinstance(tensor, torch.nn.Parameter) or (at is not None and self.externals[at].version == version_of(tensor))

    def _refer_all(self, given: Any) -> Any:
        if given is None or isinstance(given, torch.Tensor):
            return None if given is None else self._refer(given, "", False)
        return [None if t is None else self._refer(t, "", False) for t in given]

    def _require(self, tensor: torch.Tensor, number: int) -> None:
        if tensor.requires_grad and tensor.is_leaf and number not in self.required:
            self.required.add(number)
            self.steps.append(Require(Ref(False, number)))
        elif number in self.made_untracked and tensor.grad_fn is not None:
            self._problem("a custom autograd function ran outside of the modules; its backward is not known")

    def _before_scale(self, ref: Ref) -> Ref:
        """The loss before `scaler.scale(loss)` multiplied it."""
        scales = [scale for scale in (getattr(s, "_scale", None) for s in getattr(self.session, "scalers", ()) or ())
                  if isinstance(scale, torch.Tensor)]
        for step in reversed(self.steps):
            if isinstance(step, TailOp) and not ref.external and ref.number in step.outputs:
                if step.func._schema.name != "aten::mul" or len(step.args) != 2:
                    break
                for one, other in (step.args, step.args[::-1]):
                    if isinstance(one, Ref) and isinstance(other, Ref) and other.external and any(
                            self.externals[other.number].tensor is scale for scale in scales):
                        return one
                break
        return ref

    def _gradients_before(self) -> None:
        """Gradients that were there before the first backward. A replay begins without any; zeros are the same as none."""
        if self.seen_gradients:
            return
        self.seen_gradients = True
        for _, root in self.roots:
            if not isinstance(root, torch.nn.Module):
                continue
            looked = 0
            for parameter in root.parameters():
                gradient = parameter.grad
                if gradient is None or gradient.layout != torch.strided or gradient.device.type != "cpu":
                    continue
                if bool(gradient.detach().reshape(-1)[:16].any()):
                    self.differences.append("gradients of an earlier update were there, and a replay begins without them")
                    return
                looked += 1
                if looked == 4:
                    break

    def _operator(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        """One operator of the tail runs."""
        step: Optional[TailOp] = None
        try:
            step = self._before(func, args, kwargs)
        except Exception as why:  # a fault of ours must not be one of the user's
            self._give_up(f"recording {func} failed: {type(why).__name__}: {why}")
        result = func(*args, **kwargs)
        if step is not None:
            try:
                self._after(step, args, kwargs, result)
            except Exception as why:
                self._give_up(f"recording {func} failed: {type(why).__name__}: {why}")
        return result

    def _give_up(self, why: str) -> None:
        self._problem(why)
        self.tail_off, self.mode.on = True, False

    def _before(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Optional[TailOp]:
        if func.namespace in ("profiler", "prim") or threading.get_ident() != self.thread:
            return None
        if torch._C._current_graph_task_id() != -1:
            self._problem("a gradient was taken in the middle of the update, by other means than torch.autograd.grad")
            return None
        if self.between and not any(self.values.find(tensor) is not None for tensor in flat(args, kwargs)):
            return None
        grad = torch.is_grad_enabled()
        if func.namespace in ("c10d", "_c10d_functional"):
            for tensor in flat(args, kwargs):
                self.values.forget(tensor)  # what it holds afterwards is taken as it is
            return None
        self.ops += 1
        if not grad:
            self.untracked += 1
            if self.untracked > OPS_UNTRACKED_MAX:
                self.ops -= 1
                return None
        if self.ops > OPS_MAX:
            self._give_up(f"more than {OPS_MAX} operators ran outside of the modules")
            return None
        names, writes, draws = about(func)
        step = TailOp(func, (), {}, [], [], self.micro, grad, None)
        step.args = tuple(self._argument(given, names[i] in writes, step) for i, given in enumerate(args))
        step.kwargs = {name: self._argument(given, name in writes, step) for name, given in kwargs.items()}
        if draws:
            step.rng = torch.get_rng_state()
            step.generators = randomness.of_generators(args, kwargs)
        step.source = source.caller()
        return step

    def _argument(self, given: Any, written: bool, step: TailOp) -> Any:
        if isinstance(given, torch.Tensor):
            ref = self._refer(given, "", False)
            if ref.external and not written and step.func.namespace == "aten" and not given.requires_grad:
                self.externals[ref.number].batch = self.externals[ref.number].batch or given.dim() > 0
            if written:
                step.writes.append(ref)
                if ref.external:
                    self._will_write(self.externals[ref.number])
            return ref
        if isinstance(given, (list, tuple)):
            return type(given)(self._argument(child, written, step) for child in given)
        return given

    def _will_write(self, external: External) -> None:
        """The tail writes into something that was there before: a replay needs what it held."""
        external.written = True
        if external.before is None and not external.live():
            if external.tensor.numel() * external.tensor.element_size() > COPY_MAX:
                self._problem("the loss writes into a tensor too large to be kept")
            else:
                external.before = copy_of(external.tensor)

    def _after(self, step: TailOp, args: Any, kwargs: Dict[str, Any], result: Any) -> None:
        given = {id(tensor) for tensor in flat(args, kwargs)}
        for tensor in [result] if isinstance(result, torch.Tensor) else flat((result,), {}):
            if id(tensor) in given:
                step.outputs.append(-1)
                continue
            number = self.values.made(tensor, step.grad)
            step.outputs.append(number)
            if not step.grad:
                self.made_untracked.add(number)
        for ref in step.writes:
            if step.grad and not ref.external:
                self.made_untracked.discard(ref.number)
        self.steps.append(step)
