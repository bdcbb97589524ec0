"""Callbacks for other people's trainers, and a gradient transformation for JAX.

    from firstbad.integrations.transformers import FirstbadCallback      Trainer(..., callbacks=[FirstbadCallback()])
    from firstbad.integrations.lightning import FirstbadCallback         Trainer(callbacks=[FirstbadCallback()])
    from firstbad.integrations.jax import skip_nonfinite, check          optimizer = skip_nonfinite(optax.adamw(3e-4))

None of them is needed under `firstbad run`, which guards these trainers as it guards any script. They are for who starts training
without it, and add what only the framework knows. Importing this package imports none of them.
"""
