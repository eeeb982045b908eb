"""The client side of the Flower simulation; Ray's actors import it."""

from __future__ import annotations

import functools

import torch
import torch_models
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

app = ClientApp()


@functools.cache
def kept(data: str, workload: str, threads: int) -> tuple[work.Cell, list, torch.nn.Module]:
    """What an actor keeps from one client to the next: the data and the model are made once for each actor."""
    torch.set_num_threads(threads)
    cell = work.load(data, workload)
    rows = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in cell.ordered()]
    return cell, rows, torch_models.build(workload, cell.weights)


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    cell, rows, model = kept(config["data"], config["workload"], config["threads"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = rows[context.node_config["partition-id"]]
    optimiser = torch.optim.SGD(model.parameters(), lr=cell.lr)
    for t in range(work.STEPS):
        now = slice(t * cell.batch, (t + 1) * cell.batch)
        optimiser.zero_grad()
        cross_entropy(model(x[now]), y[now]).backward()
        optimiser.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y)}),
    }
    return Message(content=RecordDict(content), reply_to=message)
