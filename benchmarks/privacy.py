"""What privacy costs: secure aggregation beside plain exchanges, and private steps beside plain ones.

python benchmarks/privacy.py [--sites 8] [--times 30] [--sizes 100000 1000000] [--only steps]
"""

from __future__ import annotations

import argparse
import os

import dp_steps
import torch
from secure_aggregation import lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--only", choices=["steps", "sums"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{given.sites} sites, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {given.times}")
    if given.only != "steps":
        print("\n".join(lines(given.sites, given.sizes, given.times)))
    if given.only != "sums":
        dp_steps.main()


if __name__ == "__main__":
    main()
