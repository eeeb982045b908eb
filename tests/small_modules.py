"""A dozen small networks, as users of PyTorch write them, each with rows that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaddle.data.store import Stacked
from small import SIZES, classes, rows_of


class Pick(nn.Module):
    """The last step of a recurrent network, or the mean of a sequence, and a linear layer."""

    def __init__(self, body: nn.Module, width: int, scores: int, embed: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4) if embed else nn.Identity()
        self.body, self.head = body, nn.Linear(width, scores)

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(self.embed(x))
        out = out[0] if isinstance(out, tuple) else out
        return self.head(out[:, -1])


class TimeFirst(Pick):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.transpose(0, 1))[0][-1])


class Attention(nn.Module):
    def __init__(self, scores: int, need_weights: bool) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True)
        self.head, self.need_weights = nn.Linear(4, scores), need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attend(x, x, x, need_weights=self.need_weights)[0].mean(1))


class InForward(nn.Module):
    """`F.dropout` in the forward pass, and stochastic depth by hand."""

    def __init__(self, scores: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, scores)

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(torch.tanh(self.a(x)), 0.4, self.training)
        if self.training:
            h = h + h * h.new_empty(len(h), 1).bernoulli_(0.5) + 0.1 * torch.randn_like(h)
        return self.b(h)


class BagOfWords(nn.Module):
    def __init__(self, scores: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(6, 5, padding_idx=0), nn.Linear(5, scores)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.words(x).mean(1), 0.2, self.training))


class Shared(nn.Module):
    """One matrix in two places."""

    def __init__(self, scores: int) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, scores)
        self.b.weight = self.a.weight
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.drop(self.a(x).relu())))


class Branching(nn.Module):
    """What vmap cannot do: a decision on a number."""

    def __init__(self, scores: int) -> None:
        super().__init__()
        self.a = nn.Linear(4, scores)

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(x, 0.3, self.training)
        return self.a(h if h.sum().item() > 0 else -h)


class NormalisedBranching(Branching):
    def __init__(self, scores: int) -> None:
        super().__init__(scores)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return self.a(h if h[0, 0].item() > 0 else -h)


class NormalisedSteps(nn.Module):
    """BatchNorm of the steps of a sequence, a recurrent layer in both directions, and dropout."""

    def __init__(self, scores: int) -> None:
        super().__init__()
        self.norm, self.rnn = nn.BatchNorm1d(4), nn.RNN(4, 3, bidirectional=True)
        self.lstm, self.head = nn.LSTM(6, 3, 2, dropout=0.2, batch_first=True), nn.Linear(3, scores)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.rnn(self.norm(x.mT).permute(2, 0, 1))[0]
        return self.head(self.lstm(steps.transpose(0, 1))[1][1][-1])


class Packed(nn.Module):
    """Sequences of different lengths."""

    def __init__(self, scores: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, scores)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.arange(len(x)) % 5 + 1
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.lstm(packed)[1][0][-1])


def normalised_cnn(scores: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, scores))


def cnn(scores: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Dropout2d(0.4), nn.Flatten(), nn.Linear(12, scores))


def encoder(scores: int) -> nn.Module:
    return Pick(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True), 4, scores)


def pictures(count: int) -> Stacked:
    return _shaped(count, (1, 3, 3))


def sequences(count: int) -> Stacked:
    return _shaped(count, (5, 4))


def tokens(count: int) -> Stacked:
    g = torch.Generator().manual_seed(3)
    return rows_of(
        [torch.randint(6, (n, 5), generator=g) for n in SIZES], [torch.randint(count, (n,), generator=g) for n in SIZES]
    )


def _shaped(count: int, shape: tuple[int, ...]) -> Stacked:
    g = torch.Generator().manual_seed(2)
    xs = [torch.randn(n, *shape, generator=g, dtype=torch.float64) for n in SIZES]
    return rows_of(xs, [torch.randint(count, (n,), generator=g) for n in SIZES])


def table(count: int) -> Stacked:
    return classes(classes=count)


@dataclass(frozen=True)
class Small:
    make: Callable[[int], nn.Module]  # of the number of scores
    rows: Callable[[int], Stacked] = table  # of the number of classes
    draws: bool = True
    cohorts: bool = True  # whether vmap takes it


MODULES = {
    "dropout mlp": Small(lambda k: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, k))),
    "alpha dropout": Small(lambda k: nn.Sequential(nn.Linear(4, 6), nn.SELU(), nn.AlphaDropout(0.3), nn.Linear(6, k))),
    "cnn, dropout2d": Small(cnn, pictures),
    "lstm": Small(lambda k: Pick(nn.LSTM(4, 3, 2, batch_first=True, dropout=0.4), 3, k), sequences),
    "gru of tokens": Small(lambda k: Pick(nn.GRU(4, 3, batch_first=True), 3, k, True), tokens, draws=False),
    "gru, time first": Small(lambda k: TimeFirst(nn.GRU(4, 3, 2, dropout=0.4), 3, k), sequences),
    "lstm of packed sequences": Small(Packed, sequences, draws=False, cohorts=False),
    "lstm with projections": Small(
        lambda k: Pick(nn.LSTM(4, 3, proj_size=2, batch_first=True), 2, k), sequences, draws=False, cohorts=False
    ),
    "attention": Small(lambda k: Attention(k, True), sequences),
    "attention without weights": Small(lambda k: Attention(k, False), sequences, cohorts=False),
    "transformer encoder layer": Small(encoder, sequences, cohorts=False),
    "bag of words": Small(BagOfWords, tokens, cohorts=False),
    "batch norm and dropout": Small(
        lambda k: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.Linear(5, k))
    ),
    "cnn, batch norm": Small(normalised_cnn, pictures, draws=False),
    "batch norm and lstm": Small(NormalisedSteps, sequences),
    "batch norm and a decision on a number": Small(NormalisedBranching, draws=False, cohorts=False),
    "shared weights": Small(Shared),
    "layer norm": Small(
        lambda k: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, k)), draws=False
    ),
    "group norm": Small(lambda k: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Dropout(0.2), nn.Linear(6, k))),
    "random functions in forward": Small(InForward),
    "a decision on a number": Small(Branching, cohorts=False),
}
