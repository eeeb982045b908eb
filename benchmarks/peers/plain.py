"""A plain research loop in PyTorch: copy the model, go over a DataLoader, SGD, average the states.

With --variant slices the DataLoader is replaced by slices of the client's tensors, which is
the fastest loop one writes by hand; the default is the loop that most research code has.
"""

from __future__ import annotations

import copy

import torch
import torch_models
import work
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    args = work.arguments()
    clock = work.Clock(args, torch.set_num_threads)
    cell = work.load(args.data, args.workload)
    model = torch_models.build(args.workload, cell.weights)
    used = work.STEPS * cell.batch
    clients = [(torch.from_numpy(x[:used]), torch.from_numpy(y[:used])) for x, y in cell.ordered()]
    if args.variant == "slices":
        loaders = [list(zip(x.split(cell.batch), y.split(cell.batch), strict=True)) for x, y in clients]
    else:
        loaders = [DataLoader(TensorDataset(x, y), batch_size=cell.batch) for x, y in clients]

    def one_round() -> None:
        states = []
        for loader in loaders:
            local = copy.deepcopy(model)
            optimiser = torch.optim.SGD(local.parameters(), lr=cell.lr)
            for x, y in loader:
                optimiser.zero_grad()
                cross_entropy(local(x), y).backward()
                optimiser.step()
            states.append(local.state_dict())
        model.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})

    clock.begin()
    while True:
        one_round()
        if clock.round_done(lambda: torch_models.export(model)):
            break
    clock.report("torch", "numpy")


if __name__ == "__main__":
    main()
