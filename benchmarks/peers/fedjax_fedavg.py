"""FedJAX (PyPI fedjax): its federated_averaging algorithm with the jit backend, or the pmap backend.

The jit backend is FedJAX's default, and XLA spreads an operation over the cores by itself. With --variant
devices it is the pmap backend, with as many devices of XLA as threads are asked for, so that as many clients
train at a time; its functions that JAX has removed since 2024 are put back. Arrays have JAX's own layouts, NHWC
and HWIO.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

import work

ARGS = work.arguments()
if ARGS.variant == "devices":  # XLA reads it when it starts
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ARGS.threads}"

import jax

jax.tree_map = jax.tree_util.tree_map  # FedJAX 0.0.17 still uses the name that JAX has removed

import fedjax
import jax.numpy as jnp
import numpy as np
import optax
from fedjax.core import for_each_client

Params = dict[str, jax.Array]


def to_jax(name: str, weights: work.Arrays) -> Params:
    """Dense weights as (in, out), convolutions as HWIO, and the rows after the flattening in HWC order."""
    out = {}
    for key, value in weights.items():
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)
        elif value.ndim == 2:
            if name == "W3" and key == "w2":
                value = value.reshape(512, 64, 7, 7).transpose(0, 2, 3, 1).reshape(512, 3136)
            value = value.T
        out[key] = jnp.asarray(value)
    return out


def from_jax(name: str, params: Params) -> work.Arrays:
    out = {}
    for key, value in params.items():
        array = np.asarray(value)
        if array.ndim == 4:
            array = array.transpose(3, 2, 0, 1)
        elif array.ndim == 2:
            array = array.T
            if name == "W3" and key == "w2":
                array = array.reshape(512, 7, 7, 64).transpose(0, 3, 1, 2).reshape(512, 3136)
        out[key] = array
    return out


def forward(name: str, p: Params, x: jax.Array) -> jax.Array:
    if name == "W1":
        return x @ p["w0"] + p["b0"]
    if name == "W2":
        x = jax.nn.relu(x @ p["w0"] + p["b0"])
        x = jax.nn.relu(x @ p["w1"] + p["b1"])
        return x @ p["w2"] + p["b2"]
    for k in (0, 1):
        x = jax.lax.conv_general_dilated(x, p[f"w{k}"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + p[f"b{k}"])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(len(x), -1) @ p["w2"] + p["b2"])
    return x @ p["w3"] + p["b3"]


class Devices(for_each_client.ForEachClientPmapBackend):
    """The pmap backend on a JAX of today, whose shards keep an axis of length one."""

    def __call__(self, *functions):
        run = super().__call__(*functions)

        def each(shared, clients):
            for client, output, steps in run(shared, clients):
                yield client, jax.tree_util.tree_map(lambda x: x[0], output), steps

        return each


def use_devices() -> None:
    """Choose the pmap backend; pmap itself spreads stacked arrays over the devices."""
    stacked = jax.tree_util.tree_map
    jax.device_put_sharded = lambda shards, devices: stacked(lambda *xs: np.stack(xs), *shards)
    jax.device_put_replicated = lambda x, devices: stacked(lambda v: np.stack([np.asarray(v)] * len(devices)), x)
    fedjax.set_for_each_client_backend(Devices())


def main() -> None:
    args = ARGS
    clock = work.Clock(args)
    cell = work.load(args.data, args.workload)

    def loss(params: Params, batch: Params, rng: jax.Array) -> jax.Array:
        logits = forward(args.workload, params, batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    rows = ((np.moveaxis(x, 1, -1) if x.ndim == 4 else x, y.astype(np.int32)) for x, y in cell.ordered())
    data = [fedjax.ClientDataset({"x": np.ascontiguousarray(x), "y": y}) for x, y in rows]
    hparams = fedjax.ShuffleRepeatBatchHParams(cell.batch, num_epochs=None, num_steps=work.STEPS, skip_shuffle=True)
    if args.variant == "devices":
        use_devices()
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss), fedjax.optimizers.sgd(cell.lr), fedjax.optimizers.sgd(1.0), hparams
    )
    keys = jax.random.split(jax.random.PRNGKey(0), cell.clients)
    state = algorithm.init(to_jax(args.workload, cell.weights))
    clients = [(i, d, k) for i, (d, k) in enumerate(zip(data, keys, strict=True))]
    clock.begin()
    while True:
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        if clock.round_done(lambda params=state.params: from_jax(args.workload, params)):
            break
    clock.report("fedjax", "jax", "jaxlib", "numpy")


if __name__ == "__main__":
    main()
