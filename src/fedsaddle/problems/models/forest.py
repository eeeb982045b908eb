"""Boosted trees as a module: a linear score and a sum of regression trees of one depth, in a vector of fixed length."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedsaddle.arguments import whole
from fedsaddle.errors import BadInput
from fedsaddle.problems.models.networks import check_units, check_weights

NO_SPLIT = 3e38  # as a threshold
MOST_DEPTH = 12
MOST_TREES = 100_000


class TreeScores(nn.Module):
    """The scores of a forest in plain PyTorch; its source is copied beside a saved model."""

    def __init__(self, inputs: int, outputs: int, trees: int, depth: int) -> None:
        super().__init__()
        self.inputs, self.outputs, self.trees, self.depth = inputs, outputs, trees, depth
        nodes = (trees, outputs, 2**depth - 1)
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.feature = nn.Parameter(torch.zeros(nodes))
        self.threshold = nn.Parameter(torch.full(nodes, 3e38))  # every row goes to the left
        self.gain = nn.Parameter(torch.zeros(nodes))  # of a split, for importances
        self.leaf = nn.Parameter(torch.zeros(trees, outputs, 2**depth))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, ...)` features to `(B, outputs)` scores."""
        x = x.flatten(1)
        scores = nn.functional.linear(x, self.weight, self.bias)
        used = self.leaf.detach().ne(0).flatten(1).any(1).nonzero()
        grown = int(used.max()) + 1 if len(used) else 0  # a tree before the last may be 0 everywhere
        several = max(1, 2**21 // (max(len(x), 1) * self.outputs))  # trees at once
        for first in range(0, grown, several):
            part = slice(first, min(first + several, grown))
            at = reached(x, self.feature[part], self.threshold[part], self.depth)
            scores = scores + leaves(self.leaf[part], at).sum(1)
        return scores


class Forest(TreeScores):
    """`x W^T + b + Σ_t leaf_t(x)`: a linear score and the leaves that a row reaches in trees of equal depth.

    A node sends a row to the right if its feature exceeds the threshold. Nodes are numbered level by level, the
    children of node j are 2j + 1 and 2j + 2. A new forest has no splits and scores 0 everywhere; `fs.BoostedTrees`
    grows it. Its parameters have a fixed length, so that it is stored and sent like any other model.

    Args:
        inputs: Features of a row.
        outputs: Scores of a row, each with trees of its own.
        trees: Trees for each score.
        depth: Splits on the way from the root to a leaf.

    Examples:
        >>> import fedsaddle as fs
        >>> forest = fs.models.Forest(30, trees=100, depth=4)
        >>> sum(p.numel() for p in forest.parameters())
        6131
    """

    def __init__(self, inputs: int, outputs: int = 1, trees: int = 240, depth: int = 4) -> None:
        check_units("inputs", inputs)
        check_units("outputs", outputs)
        whole("trees", trees, most=MOST_TREES)
        whole("depth", depth, most=MOST_DEPTH)
        check_weights("trees", trees, trees * outputs * 4 * 2**depth + outputs * (inputs + 1))
        super().__init__(inputs, outputs, trees, depth)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, ...)` features to `(B, outputs)` scores."""
        if x.flatten(1).shape[1] != self.inputs:
            rows = f"rows have {x.flatten(1).shape[1]} features; use a forest with as many"
            raise BadInput("model.inputs", self.inputs, rows)
        return super().forward(x)

    def linear_part(self, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The linear score from the tensors of a linear model, or all of a forest of the same shape.

        Raises:
            BadInput: if they are of another model, or of other features.
        """
        if "leaf" in trained:
            return dict(trained)
        weights = [v for k, v in trained.items() if k.rpartition(".")[2] == "weight"]
        biases = [v for k, v in trained.items() if k.rpartition(".")[2] == "bias"]
        if len(trained) != 2 or len(weights) != 1 or len(biases) != 1:
            raise BadInput("start_from", "a network", "a forest starts from a linear model or a forest; use one")
        weight, bias = weights[0], biases[0]
        if len(weight) == 2 and self.outputs == 1:  # two scores, of which the difference counts
            weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
        return {"weight": weight, "bias": bias}

    def importances(self) -> Tensor:
        """The sum of gains of each feature's splits, `(inputs,)`, relative to the sum of all."""
        total = self.gain.new_zeros(self.inputs)
        total.index_add_(0, self.feature.detach().flatten().long(), self.gain.detach().flatten())
        return total / total.sum().clamp_min(torch.finfo(total.dtype).tiny)


def reached(x: Tensor, feature: Tensor, threshold: Tensor, levels: int) -> Tensor:
    """The node that each row reaches after so many levels, counted from the left: `(B, trees, outputs)`.

    Args:
        x: rows, `(B, p)`.
        feature: the number of each node's feature, `(trees, outputs, nodes)`.
        threshold: rows above it go to the right, of the same shape.
        levels: how many splits to follow.
    """
    trees, outputs, _ = feature.shape
    node = torch.zeros(trees, outputs, len(x), dtype=torch.int64, device=x.device)
    columns = x.mT
    rows = torch.arange(len(x), device=x.device)
    for level in range(levels):
        at = node + (2**level - 1)
        node = 2 * node + (columns[feature.gather(2, at).long(), rows] > threshold.gather(2, at))
    return node.permute(2, 0, 1)


def leaves(leaf: Tensor, at: Tensor) -> Tensor:
    """The values of the leaves that rows reach, `(B, trees, outputs)`; `leaf` is `(trees, outputs, leaves)`."""
    return leaf.gather(2, at.permute(1, 2, 0)).permute(2, 0, 1)
