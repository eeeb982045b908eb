"""What a server that lies, or only remembers, learns of the rows of a site: each attack against real sites in process.

    python benchmarks/lying_server.py

Three sites with 96 rows each, under the policy that a kit begins with: logistic regression by FedAvg in minibatches of
8 rows. An attack sends what the protocol allows and counts as recovered the rows whose label and features it has,
each feature to .1 standard deviations. The server knows the run's config, with its seed, and the sites' facts.
"""

from __future__ import annotations

import argparse
import csv
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.algorithms.fedavg import FedAvg, LocalModel, Start
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.deployment.agreement import agree_on_encoding, build_from, collect_keys, digests
from fedsaddle.deployment.courier import Courier, InProcess, Patience
from fedsaddle.deployment.messages import Answer, Ask, Request, SecureCohort, UnmaskAsked
from fedsaddle.deployment.secure_clients import read_opening
from fedsaddle.deployment.secure_site import read_identity, write_site_keys
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.errors import FedSaddleError
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.runs.checkpoints import shared_fingerprint
from fedsaddle.runs.folder import RunFolder
from fedsaddle.secure.fixed_point import decode, read_layout, sum_of
from fedsaddle.secure.masking import unmask_

SITES, ROWS, BATCH = 3, 96, 8
NEAR = 0.1  # standard deviations
COLUMNS = ("age", "pressure", "potassium", "lactate")
POLICY = SitePolicy()
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """What an attack came to."""

    attack: str
    asked: int
    answered: int
    rows: int  # recovered
    of: int
    labels: int = 0
    note: str = ""
    seconds: float = 0.0


def write_files(folder: Path) -> list[Path]:
    """A table for each site."""
    rng, paths = np.random.default_rng(5), []
    for i in range(SITES):
        age = rng.choice(np.arange(30, 95), ROWS)
        others = [rng.normal(mean, std, ROWS) for mean, std in ((125, 18), (4.2, 0.5), (2.0, 0.7))]
        score = (age - 60) / 15 + (others[2] - 2.0) + rng.normal(0, 1, ROWS)
        paths.append(folder / f"rows-{i}.csv")
        with paths[-1].open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*COLUMNS, "died"])
            out.writerows(zip(age, *(np.round(o, 3) for o in others), (score > 0).astype(int), strict=True))
    return paths


def config_of(path: Path, rounds: int, secure: bool = False, **algorithm: Any) -> Config:
    """The agreed config."""
    return validate_config(
        {
            "data": {
                "name": "file", "path": str(path), "target": "died", "features": list(COLUMNS), "test_share": 0.25,
                "positive": "1",
            },
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "FedAvg", "batch_size": BATCH, "local_steps": 1, **algorithm},
            "privacy": {"secure_aggregation": secure},
            "run": {"rounds": rounds, "dtype": "float64", "evaluate_every": max(1, rounds // 10)},
        }
    )  # fmt: skip


@dataclass
class Liar:
    """A server that asks for more than its run needs."""

    config: Config
    sites: dict[int, SiteService]
    folder: Path
    run: str = "trial"
    asked: int = 0
    answered: int = 0
    refusals: list[str] = field(default_factory=list)
    algorithm: Any = None
    fingerprint: str = ""
    agreed: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, folder: Path, rounds: int = 20, secure: bool = False, run: str = "trial", **algorithm: Any) -> Liar:
        """New sites with empty folders, and a server that wants to know their rows."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = write_files(folder)
        own = [SiteSettings(f"site-{i + 1}", path, folder / f"disk-{i}") for i, path in enumerate(paths)]
        configs = [config_of(path, rounds, secure, **algorithm) for path in paths]
        sites = {i: SiteService(configs[i], own[i], POLICY) for i in range(SITES)}
        if secure:
            kits = {one.settings.name: folder / one.settings.name for one in sites.values()}
            write_site_keys(kits, list(kits))
            for one in sites.values():
                one.identity = read_identity(kits[one.settings.name], one.settings.name)
        return cls(config_of(paths[0], rounds, secure, **algorithm), sites, folder, run)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(site.settings.name for site in self.sites.values())

    def handshake(self) -> None:
        """What an honest server does before the first round."""
        courier = Courier(InProcess({i: s.answer for i, s in self.sites.items()}), self.names, Patience(patience=0))
        out = RunFolder(self.folder / "out" / self.run)
        agreement = agree_on_encoding(courier, self.config, self.run, out)
        self.algorithm, _ = build_from(self.config, agreement.encoding, self.names)
        self.fingerprint = shared_fingerprint(self.algorithm, len(self.names), self.config.run.seed)
        self.agreed = {"config": digests(self.config), "names": list(self.names), "agreed": agreement.encoding}
        if self.config.privacy.secure_aggregation:
            self.agreed["keys"] = collect_keys(courier, self.config, self.run, out)
            self.agreed["sizes"] = agreement.sizes["rows"]
        courier.request(
            "agree", self.run, self.agreed, fingerprint=self.fingerprint, everyone=True, check=lambda *_: None
        )

    def send(self, client: int, header: dict[str, Any], record: object) -> tuple[Answer, Any]:
        """One message to one site, and its answer."""
        self.asked += 1
        reply = unpack(self.sites[client].answer(pack(Message(header, record))), records_of(self.algorithm or FedAvg))
        answer = Answer.read(reply.about)
        if answer.failure is None:
            self.answered += 1
        else:
            self.refusals.append(answer.failure.detail)
        return answer, None if answer.failure else reply.record

    def request(self, client: int, do: str, record: object) -> Any:
        """A request other than a task."""
        header = Request(do=do, run=self.run, fingerprint=self.fingerprint, nonce=secrets.token_hex(8)).to_dict()
        return self.send(client, header, record)[1]

    def ask(self, sent: object, round: int, exchange: int, **more: Any) -> dict[int, Any]:
        """The same task at every site: the replies."""
        nonce = secrets.token_hex(8)
        ask = Ask(
            run=self.run, fingerprint=self.fingerprint, nonce=nonce, round=round, exchange=exchange, task="local_sgd",
            starts={}, keep={}, **more,
        )  # fmt: skip
        found = {i: self.send(i, ask.to_dict(), sent) for i in self.sites}
        return {i: (nonce, record) for i, (answer, record) in found.items() if answer.failure is None}

    def sum(self, sent: Start, round: int, exchange: int, shares: Sequence[float]) -> Tensor | None:
        """The mean by shares of the masked replies of all sites; None if they refuse."""
        cohort = SecureCohort(shares={str(i): share for i, share in enumerate(shares)})
        replies = self.ask(sent, round, exchange, secure=cohort)
        if len(replies) < SITES:
            return None
        opened = {}
        for i, (nonce, _) in replies.items():
            told = self.request(i, "unmask", UnmaskAsked(of=nonce, alive=[*range(SITES)]).model_dump())
            if told is None:
                return None
            opened[i] = read_opening(told, i, [*range(SITES)], [])
        layout = read_layout(replies[0][1]["fields"])
        total = sum_of([record["masked"] for _, record in replies.values()], layout)
        unmask_(total, replies, opened, [])
        return decode(total, layout)["final"]

    def truth(self, client: int) -> tuple[Tensor, Tensor]:
        """The site's training rows as the tasks see them."""
        service = self.sites[client]
        agreed = service._agreed_run(self.run)
        return agreed.rows["train"].x.double(), agreed.rows["train"].y

    def found(self, attack: str, recovered: dict[int, tuple[Tensor, Tensor]], **more: Any) -> Found:
        """How many rows were recovered."""
        rows = labels = of = 0
        for i in self.sites:
            x, y = self.truth(i)
            of += len(x)
            if i in recovered:
                own_x, own_y = recovered[i]
                right = own_y == y
                labels += int(right.sum())
                rows += int((right & ((own_x - x).abs() <= NEAR * x.std(0)).all(1)).sum())
        note = more.pop("note", "") or (self.refusals[0] if self.refusals else "")
        return Found(attack, self.asked, self.answered, rows, of, labels, note, **more)


def drawn(liar: Liar, client: int, round: int, exchange: int, rows: int) -> Floats:
    """How often each row is in the minibatch, if that follows from the seed."""
    number = np.array([client], dtype=np.int64)
    keys = ClientKeys.of(liar.config.run.seed, round, exchange, number)
    return np.bincount(keys.rows(np.array([rows], dtype=np.int64), 0, BATCH)[0], minlength=rows).astype(np.float64)


def slope_of(sent: Start, reply: Tensor) -> Floats:
    """The gradient of the output for class 1 by its weights and its bias: of rows (p - y) (x, 1)."""
    d = (len(sent.w) - 2) // 2
    g = ((sent.w - reply.reshape(-1)) / sent.step).double().numpy() * BATCH
    return np.concatenate([g[d : 2 * d], g[2 * d + 1 :]])


def solved(counts: Floats, sums: Floats) -> tuple[Tensor, Tensor]:
    """Features and labels of rows of which `counts (T, n)` times the rows of (p - y) (x, 1) are `sums (T, d + 1)`."""
    each = np.linalg.lstsq(counts, sums, rcond=None)[0]
    residual = np.where(np.abs(each[:, -1:]) > 1e-9, each[:, -1:], np.nan)
    x = np.nan_to_num(each[:, :-1] / residual, nan=1e9)
    return torch.from_numpy(x), torch.from_numpy((each[:, -1] < 0).astype(np.int64))


def invented_exchanges(folder: Path) -> Found:
    """136 tasks of one round, under exchange numbers that the run does not have."""
    liar = Liar.new(folder)
    liar.handshake()
    n = [len(liar.truth(i)[0]) for i in liar.sites]
    sent = Start(torch.zeros(2 * len(COLUMNS) + 2, dtype=torch.float64), 0.1)
    counts: dict[int, list[Floats]] = {i: [] for i in liar.sites}
    sums: dict[int, list[Floats]] = {i: [] for i in liar.sites}
    for exchange in range(136):
        for i, (_, reply) in liar.ask(sent, 0, exchange).items():
            counts[i].append(drawn(liar, i, 0, exchange, n[i]))
            sums[i].append(slope_of(sent, reply.final))
    enough = {i: solved(np.stack(counts[i]), np.stack(sums[i])) for i in liar.sites if counts[i]}
    return liar.found("136 tasks of one round", enough)


def memory(folder: Path) -> Found:
    """The 400 rounds of an ordinary run of one local step, remembered."""
    liar = Liar.new(folder, rounds=400)
    log: list[tuple[int, Start, dict[int, Tensor]]] = []

    class Remembers(InProcess):
        def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> Any:
            found = super().exchange(clients, content, least, timeout)
            if "do" not in about(content):
                kinds = {"Start": Start, "LocalModel": LocalModel}
                asked = unpack(content, kinds)
                replies = {a.client: unpack(a.content or b"", kinds).record.final for a in found}
                log.append((int(asked.about["round"]), asked.record, replies))  # type: ignore[call-overload]
            return found

    transport = Remembers({i: s.answer for i, s in liar.sites.items()})
    DeployedRun(liar.config, liar.run, liar.names, folder / "out", Patience()).go(transport)
    liar.asked = liar.answered = sum(len(replies) for _, _, replies in log)
    recovered = {}
    for i in liar.sites:
        n = len(liar.truth(i)[0])
        counts = np.stack([drawn(liar, i, round, 0, n) for round, _, _ in log])
        sums = np.stack([slope_of(Start(sent.w, 0.1), replies[i]) for _, sent, replies in log])
        w = np.stack([sent.w.double().numpy() for _, sent, _ in log])
        recovered[i] = refined(counts, sums, w)
    return liar.found("400 rounds of one step, remembered", recovered)


def refined(counts: Floats, sums: Floats, w: Floats) -> tuple[Tensor, Tensor]:
    """Rows that explain all gradients, from a start that takes each row's output for constant in the last rounds."""
    late = slice(len(w) // 2, None)
    x, y = solved(counts[late], sums[late])
    x = x.clamp(-4, 4).requires_grad_()
    C, G, W = map(torch.from_numpy, (counts, sums, w))
    d = x.shape[1]
    slope, level = W[:, d : 2 * d] - W[:, :d], W[:, 2 * d + 1] - W[:, 2 * d]

    def off() -> Tensor:
        r = torch.sigmoid(slope @ x.T + level[:, None]) - y.double()
        return (((C * r) @ x - G[:, :-1]) ** 2).sum() + (((C * r).sum(1) - G[:, -1]) ** 2).sum()

    for _ in range(6):
        fit(x, off)
        with torch.no_grad():  # labels that fit better
            p = torch.sigmoid(slope @ x.T + level[:, None])
            each = torch.linalg.lstsq(C, (C * p).sum(1, keepdim=True) - G[:, -1:]).solution[:, 0]
            y = (each > 0.5).long()
    return x.detach(), y


def fit(x: Tensor, off: Callable[[], Tensor]) -> None:
    """Move x to where `off` is least."""
    optimiser = torch.optim.LBFGS([x], max_iter=60, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = off()
        loss.backward()
        return loss

    optimiser.step(closure)


def uneven_weights(folder: Path) -> Found:
    """Secure aggregation with the weights .998, .001 and .001."""
    liar = Liar.new(folder, secure=True)
    liar.handshake()
    sent = Start(torch.zeros(2 * len(COLUMNS) + 2, dtype=torch.float64), 0.1)
    total = liar.sum(sent, 0, 0, [0.998, 0.001, 0.001])
    if total is None:
        return liar.found("secure aggregation, weights .998/.001/.001", {})
    x, y = liar.truth(0)
    counts = torch.from_numpy(drawn(liar, 0, 0, 0, len(x)))
    g = (counts * (0.5 - y.double())) @ torch.cat([x, torch.ones(len(x), 1)], 1)
    off = float(np.abs(slope_of(sent, total) - g.numpy()).max() / np.abs(g.numpy()).max())
    return liar.found("secure aggregation, weights .998/.001/.001", {}, note=f"one site's update, to {off:.1e} of it")


def many_sums(folder: Path) -> Found:
    """348 sums of equal weights over three sites, under exchange numbers that the run does not have."""
    liar = Liar.new(folder, secure=True)
    liar.handshake()
    n = [len(liar.truth(i)[0]) for i in liar.sites]
    sent = Start(torch.zeros(2 * len(COLUMNS) + 2, dtype=torch.float64), 1000.0)
    counts, sums = [], []
    for exchange in range(348):
        total = liar.sum(sent, 0, exchange, [1 / SITES] * SITES)
        if total is not None:
            counts.append(np.concatenate([drawn(liar, i, 0, exchange, n[i]) for i in liar.sites]))
            sums.append(SITES * slope_of(sent, total))
    if not sums:
        return liar.found("348 sums of equal weights", {})
    each = np.linalg.lstsq(np.stack(counts), np.stack(sums), rcond=None)[0]
    found = {}
    for i, own in enumerate(np.split(each, np.cumsum(n)[:-1])):
        y = (own[:, -1] < 0).astype(np.int64)
        r = 0.5 - y  # each site's part is known but for a constant, which its mean in the facts gives
        mean = liar.truth(i)[0].mean(0).numpy()
        constant = ((own[:, :-1] / r[:, None]).sum(0) - n[i] * mean) / (1 / r).sum()
        found[i] = torch.from_numpy((own[:, :-1] - constant) / r[:, None]), torch.from_numpy(y)
    return liar.found("348 sums of equal weights", found)


def foreign_models(folder: Path) -> Found:
    """Models of the server's choice, measured after 'round 10^9'; tasks begin with exchange 1."""
    liar = Liar.new(folder)
    liar.handshake()
    rng, measured = torch.Generator().manual_seed(1), 0
    for k in range(40):
        w = torch.randn(2 * len(COLUMNS) + 2, generator=rng, dtype=torch.float64)
        payload = {"w": w, "dual": None, "part": "train", "rounds": 10**9 - k}
        measured += liar.request(0, "measure", payload) is not None
        liar.ask(Start(torch.zeros_like(w), 0.1), k, 1)
    return liar.found("models measured after 'round 10^9'", {}, note=f"{measured} foreign models measured")


def invented_runs(folder: Path) -> Found:
    """60 names of runs that nobody submitted, three models measured in each."""
    liar = Liar.new(folder)
    liar.handshake()
    names = measured = 0
    for k in range(60):
        liar.run = f"invented-{k}"
        try:
            liar.handshake()
            names += 1
        except FedSaddleError as reason:
            liar.refusals.append(str(reason)[:120])
            continue
        for j in range(3):
            w = torch.full((2 * len(COLUMNS) + 2,), float(j), dtype=torch.float64)
            measured += liar.request(0, "measure", {"w": w, "dual": None, "part": "train", "rounds": 0}) is not None
    liar.run = "trial"
    return liar.found("60 invented runs", {}, note=f"{names} runs, {measured} models measured")


def chosen_edges(folder: Path) -> Found:
    """How many ages are below t, for 1,032 values of t: `counts` with a mean and a deviation of the server's choice."""
    liar = Liar.new(folder)
    drafts = [{"column": "age", "kind": "number", "mean": float(t), "std": 1e6} for t in range(29, 96)]
    told = liar.request(0, "counts", {"config": digests(liar.config), "drafts": drafts})  # all in one message
    below = (
        {}
        if told is None
        else {float(t): int(n) for t, n in zip(range(29, 96), told["counts"][:, :200].sum(1), strict=False)}
    )
    liar.handshake()
    for t in np.linspace(28.75, 95.75, 1032):
        draft = {"column": "age", "kind": "number", "mean": float(t), "std": 1e6}
        told = liar.request(0, "counts", {"config": digests(liar.config), "drafts": [draft]})
        if told is not None:
            below[float(t)] = int(told["counts"][0, :200].sum())
    ages = ages_of(liar.sites[0])
    known = sum(1 for age in ages if _exact(age, below, len(ages)))
    return liar.found("1,032 counts below t", {}, note=f"{known} of {len(ages)} ages known exactly")


def ages_of(service: SiteService) -> list[float]:
    """The ages of the training rows."""
    rows = service._rows()
    column = next(c for c in rows.sources[0].features.columns if c.name == "age")  # type: ignore[union-attr]
    return [float(v) for v in column.numbers[rows.train]]


def _exact(age: float, below: dict[float, int], n: int) -> bool:
    """Whether the counts on both sides of an age are told, and differ."""
    low = [k for t, k in below.items() if age - 1 < t <= age]
    high = [k for t, k in below.items() if age < t <= age + 1]
    return bool(low and high) and 5 <= min(low) < max(high) <= n - 5


def another_encoding(folder: Path) -> Found:
    """`agree` once more in a run, with all features scaled by 1000."""
    liar = Liar.new(folder)
    liar.handshake()
    changed = {**liar.agreed, "agreed": {**liar.agreed["agreed"]}}
    changed["agreed"]["features"] = [f | {"std": f["std"] / 1000} for f in liar.agreed["agreed"]["features"]]
    told = [liar.request(i, "agree", changed) for i in liar.sites]
    taken = sum(one is not None for one in told)
    return liar.found("another encoding in a run", {}, note=f"{taken} of {SITES} sites took it")


def chosen_models(folder: Path) -> Found:
    """The 100 rounds of a run with models of the server's choice, whose output is 0 for all rows, or 1.

    Then the gradient is the sum of the rows of the other label in the minibatch; if that is a single row, it is bare.
    """
    liar = Liar.new(folder, rounds=100)
    liar.handshake()
    seen: dict[int, list[Floats]] = {i: [] for i in liar.sites}
    for round in range(100):
        w = torch.zeros(2 * len(COLUMNS) + 2, dtype=torch.float64)
        w[-1] = 60.0 if round % 2 else -60.0
        sent = Start(w, 0.1)
        for i, (_, reply) in liar.ask(sent, round, 0).items():
            g = slope_of(sent, reply.final)
            if abs(abs(g[-1]) - 1) < 1e-6:
                seen[i].append(g[:-1] / g[-1])
    rows = of = 0
    for i in liar.sites:
        x = liar.truth(i)[0]
        of += len(x)
        rows += sum(any((np.abs(one - row.numpy()) < 1e-6).all() for one in seen[i]) for row in x)
    note = liar.refusals[0] if liar.refusals else f"{sum(map(len, seen.values()))} bare rows"
    return Found("100 rounds of chosen models", liar.asked, liar.answered, rows, of, rows, note)


ATTACKS: dict[str, Callable[[Path], Found]] = {
    "exchanges": invented_exchanges,
    "memory": memory,
    "weights": uneven_weights,
    "sums": many_sums,
    "measured": foreign_models,
    "runs": invented_runs,
    "counts": chosen_edges,
    "agree": another_encoding,
    "chosen": chosen_models,
}


def main() -> None:
    """Run the attacks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", default=[*ATTACKS], help=f"some of {', '.join(ATTACKS)}")
    torch.set_num_threads(1)
    print("| attack | messages | answered | rows recovered | labels | note | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in parser.parse_args().attacks:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            told = ATTACKS[name](Path(folder))
        seconds = time.perf_counter() - began
        parts = (told.attack, told.asked, told.answered, f"{told.rows} of {told.of}", told.labels, told.note[:110])
        print("|", " | ".join(map(str, parts)), f"| {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
