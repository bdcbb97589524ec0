"""The optax transformation against real JAX, and against optax.apply_if_finite where that accepts a bad update."""
from __future__ import annotations

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
optax = pytest.importorskip("optax", reason="optax is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from firstbad.errors import Halted  # noqa: E402
from firstbad.integrations.jax import check, describe, skip_nonfinite  # noqa: E402


def params():
    return {"layer": {"b": jnp.array([0.5, -0.0, 0.0]), "w": jnp.arange(6.0).reshape(2, 3)}, "scale": jnp.array(2.0, jnp.bfloat16)}


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree_util.tree_leaves(tree)]


def grads(bad=None):
    tree = {"layer": {"b": jnp.ones(3), "w": jnp.ones((2, 3))}, "scale": jnp.array(0.25, jnp.bfloat16)}
    if bad is not None:
        tree["layer"]["w"] = tree["layer"]["w"].at[1, 2].set(bad)
    return tree


def make(inner):
    optimizer = skip_nonfinite(inner)

    @jax.jit
    def step(p, state, g):
        updates, state = optimizer.update(g, state, p)
        return optax.apply_updates(p, updates), state

    return optimizer, step


INNER = [optax.adamw(0.1), optax.sgd(0.1, momentum=0.9), optax.chain(optax.clip_by_global_norm(1.0), optax.lion(0.1))]


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_skip__leaves_every_bit_as_it_was(inner, bad):
    optimizer, step = make(inner)
    p = params()
    state = optimizer.init(p)
    p, state = step(p, state, grads())
    p["layer"]["b"] = p["layer"]["b"].at[1].set(-0.0)
    after, skipped = step(p, state, grads(bad))
    assert bits(after) == bits(p)
    assert bits(skipped.inner) == bits(state.inner)
    assert int(skipped.total) == 1 and int(skipped.consecutive) == 1
    said = describe(skipped, p)
    assert "update 1" in said and "['layer']['w']" in said and "has 1 elements" in said


def test_healthy__is_the_inner_optimizer_to_the_last_bit():
    inner = optax.adamw(0.05)
    optimizer, step = make(inner)
    p = q = params()
    state, plain = optimizer.init(p), inner.init(q)
    plain_step = jax.jit(lambda q, s, g: (lambda u, s: (optax.apply_updates(q, u), s))(*inner.update(g, s, q)))
    for i in range(5):
        g = jax.tree_util.tree_map(lambda x, i=i: x * (i - 2), grads())
        p, state = step(p, state, g)
        q, plain = plain_step(q, plain, g)
    assert bits(p) == bits(q) and bits(state.inner) == bits(plain)
    assert describe(state, p) is None
    check(state, p)


def test_skip__never_accepts_a_bad_update_however_many_come():
    optimizer, step = make(optax.adam(0.1))
    theirs = optax.apply_if_finite(optax.adam(0.1), max_consecutive_errors=5)
    p = q = params()
    before = bits(p)
    state, their_state = optimizer.init(p), theirs.init(q)
    for _ in range(12):
        p, state = step(p, state, grads(float("nan")))
        updates, their_state = theirs.update(grads(float("nan")), their_state, q)
        q = optax.apply_updates(q, updates)
    assert bits(p) == before
    assert not all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in jax.tree_util.tree_leaves(q))
    with pytest.raises(Halted, match=r"12 in a row.*what training began with"):
        check(state, p)


def test_check__counts_in_a_row_and_a_good_update_ends_the_row():
    optimizer, step = make(optax.adam(0.1))
    p = params()
    state = optimizer.init(p)
    for bad in (float("nan"), float("nan"), None, float("nan"), float("nan")):
        p, state = step(p, state, grads(bad))
        check(state, p)
    assert int(state.total) == 4 and int(state.first_count) == 0 and int(state.bad_count) == 4
    _, state = step(p, state, grads(float("inf")))
    with pytest.raises(Halted):
        check(state, p)


def test_update__that_is_made_bad_of_finite_gradients_is_withheld_and_said_to_be_made():
    optimizer, step = make(optax.scale(3e38))
    p = params()
    state = optimizer.init(p)
    g = jax.tree_util.tree_map(lambda x: x * 0, grads())
    g["layer"]["w"] = g["layer"]["w"].at[0, 1].set(2.0)
    after, state = step(p, state, g)
    assert bits(after) == bits(p)
    assert "made of finite gradients of ['layer']['w']" in describe(state, p)


def test_formats__are_judged_by_their_bits():
    optimizer = skip_nonfinite(optax.identity())
    for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.complex64):
        for value, bad in ((1.5, False), (float("nan"), True), (float(jnp.finfo(dtype).max), False)):
            g = {"x": jnp.array([0.0, value]).astype(dtype)}
            _, state = optimizer.update(g, optimizer.init(g))
            assert bool(state.bad_count >= 0) == bad, (dtype, value)
    g = {"n": jnp.array([1, 2**30]), "f": jnp.ones(1)}
    assert int(optimizer.update(g, optimizer.init(g))[1].bad_count) == -1


def test_devices__take_one_decision():
    optimizer = skip_nonfinite(optax.sgd(0.1), axis_name="d")
    g = jnp.ones((4, 3)).at[2, 1].set(jnp.nan)
    p = jnp.ones((4, 3))
    state = jax.vmap(optimizer.init)(p)
    updates, state = jax.vmap(optimizer.update, axis_name="d")(g, state, p)
    assert np.asarray(updates == 0).all() and np.asarray(state.total).tolist() == [1, 1, 1, 1]


def test_find__looks_inside_a_chain():
    optimizer = optax.chain(optax.clip(1.0), skip_nonfinite(optax.adam(0.1)))
    p = params()
    state = optimizer.init(p)
    _, state = optimizer.update(grads(float("nan")), state, p)
    assert "update 0" in describe(state, p)
    with pytest.raises(ValueError, match="holds 0 states"):
        describe(optax.adam(0.1).init(p), p)
