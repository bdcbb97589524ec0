"""JAX: an optax transformation that withholds an update whose numbers are not all finite.

    optimizer = skip_nonfinite(optax.adamw(3e-4))
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, batch):
        grads = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for batch in batches:
        params, state = step(params, state, batch)
        check(state, params)            # raises Halted after 3 bad updates in a row, and names the first bad tensor

It differs from `optax.apply_if_finite` in four ways. A bad update is never accepted, however many come in a row: that one applies
it after `max_consecutive_errors`. What the inner optimizer made of finite gradients is judged too. A withheld update leaves
parameters and inner state as they are to the last bit, the sign of a zero included. And the state says which tensor was the first
bad one.

It stays inside JAX: no run folder, no replay, no cause. What it looks at are gradients and updates, so the tensor that it names is
a parameter, not the operator that failed. Numbers are judged by their bits, which no compiler flag takes away.
"""
from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Tuple

import jax
import jax.numpy as jnp
import optax

from ..errors import Halted

__all__ = ["SkipNonfiniteState", "skip_nonfinite", "describe", "check"]

_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


class SkipNonfiniteState(NamedTuple):
    """All are arrays on the device. inner: state of the wrapped optimizer, untouched by a withheld update.

    count        int32, updates so far, withheld ones included    consecutive  int32, withheld in a row, up to now
    total        int32, withheld so far                           bad_count    int32, count of the last withheld one, -1: none
    first_count  int32, count of the first one, -1: none
    bad_leaf     int32, index of its first bad tensor in the order of jax.tree_util, -1: none; of the last withheld update
    bad_elements int32, how many elements of that tensor are bad  bad_made     bool, the optimizer made it of finite gradients
    """

    count: Any
    consecutive: Any
    total: Any
    first_count: Any
    bad_count: Any
    bad_leaf: Any
    bad_elements: Any
    bad_made: Any
    inner: Any


def _bad(leaf: Any) -> Any:
    """Elements of a tensor that are NaN or Inf, as int32. Integers and booleans have none."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        return _bad(leaf.real) + _bad(leaf.imag)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.zeros((), jnp.int32)
    info = jnp.finfo(leaf.dtype)
    if leaf.dtype.itemsize == 1:  # the 8-bit formats have encodings of their own, and widening them is exact
        return _bad(leaf.astype(jnp.float32))
    bits = jax.lax.bitcast_convert_type(leaf, _WORDS[leaf.dtype.itemsize])
    exponent = ((1 << info.nexp) - 1) << info.nmant
    return jnp.sum((bits & exponent) == exponent, dtype=jnp.int32)


def _counts(tree: Any) -> Any:
    """int32 (leaves,): bad elements of each tensor."""
    leaves = jax.tree_util.tree_leaves(tree)
    return jnp.stack([_bad(leaf) for leaf in leaves]) if leaves else jnp.zeros((1,), jnp.int32)


def skip_nonfinite(inner: optax.GradientTransformation, axis_name: Optional[Any] = None) -> optax.GradientTransformationExtraArgs:
    """Wrap an optimizer: an update that is not finite is withheld.

    inner      the whole chain: what stands outside of it (a schedule of its own, an average) would move with a withheld update
    axis_name  under pmap or shard_map, the axis over which every device has to take the same decision
    Cost: one read of gradients and updates; the state is selected, not multiplied, so a NaN does not get through.
    """
    inner = optax.with_extra_args_support(inner)

    def init(params: Any) -> SkipNonfiniteState:
        zero, none = jnp.zeros((), jnp.int32), jnp.full((), -1, jnp.int32)
        return SkipNonfiniteState(zero, zero, zero, none, none, none, zero, jnp.zeros((), bool), inner.init(params))

    def update(grads: Any, state: SkipNonfiniteState, params: Any = None, **extra: Any) -> Tuple[Any, SkipNonfiniteState]:
        updates, changed = inner.update(grads, state.inner, params, **extra)
        of_grads, of_updates = _counts(grads), _counts(updates)
        if axis_name is not None:
            of_grads, of_updates = jax.lax.pmax(of_grads, axis_name), jax.lax.pmax(of_updates, axis_name)
        made = ~jnp.any(of_grads > 0)
        counts = jnp.where(made, of_updates, of_grads) if of_grads.shape == of_updates.shape else of_grads
        bad = jnp.any(of_grads > 0) | jnp.any(of_updates > 0)
        leaf = jnp.argmax(counts > 0).astype(jnp.int32)
        # x + -0.0 is x for every x; x + 0.0 turns a -0.0 into 0.0.
        updates = jax.tree_util.tree_map(lambda u: jnp.where(bad, jnp.full_like(u, -0.0), u), updates)
        kept = jax.tree_util.tree_map(lambda old, new: jnp.where(bad, old, new), state.inner, changed)
        return updates, SkipNonfiniteState(
            count=state.count + 1,
            consecutive=jnp.where(bad, state.consecutive + 1, 0),
            total=state.total + bad,
            first_count=jnp.where(bad & (state.first_count < 0), state.count, state.first_count),
            bad_count=jnp.where(bad, state.count, state.bad_count),
            bad_leaf=jnp.where(bad, leaf, state.bad_leaf),
            bad_elements=jnp.where(bad, counts[leaf], state.bad_elements),
            bad_made=jnp.where(bad, made, state.bad_made),
            inner=kept)

    return optax.GradientTransformationExtraArgs(init, update)


def _find(state: Any) -> SkipNonfiniteState:
    """The state of skip_nonfinite in an optimizer's state, wherever it stands."""
    found: List[SkipNonfiniteState] = []

    def look(node: Any) -> bool:
        if isinstance(node, SkipNonfiniteState):
            found.append(node)
            return True
        return False

    jax.tree_util.tree_leaves(state, is_leaf=look)
    if len(found) != 1:
        raise ValueError(f"the optimizer state holds {len(found)} states of skip_nonfinite; hand over the one that is meant")
    return found[0]


def describe(state: Any, params: Any) -> Optional[str]:
    """What the last withheld update was, in a sentence; None where there was none. Waits for the device."""
    own = _find(state)
    count = int(own.bad_count)
    if count < 0:
        return None
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    leaf = int(own.bad_leaf)
    name = jax.tree_util.keystr(paths[leaf][0]) if 0 <= leaf < len(paths) else f"tensor {leaf}"
    of = "the update that the optimizer made of finite gradients" if bool(own.bad_made) else "the gradient"
    return (f"update {count} was withheld: {of} of {name} has {int(own.bad_elements):,} elements that are NaN or Inf "
            f"(the first of its tensors in tree order); {int(own.total):,} of {int(own.count):,} updates were withheld, "
            f"{int(own.consecutive):,} in a row up to now")


def check(state: Any, params: Any, max_skips: int = 3) -> None:
    """Raise Halted when `max_skips` updates in a row were withheld. Waits for the device: ask every so often where that costs."""
    own = _find(state)
    if int(own.consecutive) >= max_skips:
        sentence = describe(state, params)
        good = int(own.count) - int(own.consecutive) - 1
        left = f"what update {good} left" if good >= 0 else "what training began with"
        raise Halted(f"{sentence}. Nothing of them was applied: parameters and optimizer are {left}.", step=int(own.bad_count))
