"""The arithmetic limit of the machine: how many rounds a second its fastest matrix products would allow.

The rate is that of the best of several products of square float32 matrices on all threads. A round needs the
products of the layers: forward, for the weights' gradients and, but for the first layer, for the inputs'
gradients. All else (activations, pooling, the steps, averages, memory, Python) counts as free, so that no
implementation by plain products can reach it.
"""

from __future__ import annotations

import json
import time

import torch
import work

SIZES = (512, 1024, 2048)
LEAST_SECONDS = 3.0


def rate(threads: int, seconds: float) -> float:
    """Operations a second of the fastest product."""
    torch.set_num_threads(threads)
    best = 0.0
    for size in SIZES:
        a, b, out = (torch.rand(size, size) for _ in range(3))
        torch.mm(a, b, out=out)
        end = time.perf_counter() + seconds / len(SIZES)
        while (began := time.perf_counter()) < end:
            torch.mm(a, b, out=out)
            best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def main() -> None:
    args = work.arguments()
    found = rate(args.threads, max(LEAST_SECONDS, args.seconds))
    result = {
        "rounds_per_second": found / (args.clients * work.STEPS * work.operations(args.workload)),
        "limit": True,
        "gflops": found / 1e9,
        "versions": work.versions("torch"),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
