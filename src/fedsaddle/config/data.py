"""Load data by name, and the data of a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedsaddle.config.arguments import check_options
from fedsaddle.config.code_kinds import require_made
from fedsaddle.config.registry import ALGORITHMS, DATASETS, SPLITS, Entry, entry
from fedsaddle.config.schema import Config, RowsConfig
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.splits.partition import Split
from fedsaddle.data.table import Dataset
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.errors import BadInput, within
from fedsaddle.own_code import user_code_errors


def load(
    name: str,
    *,
    split: str = "iid",
    seed: int = 0,
    test_share: float = 0.2,
    options: Mapping[str, object] | None = None,
    noise: Noise | None = None,
    stratify: bool = False,
    validation_share: float = 0.0,
    test_clients: Sequence[str] = (),
    **split_options: object,
) -> FederatedData:
    """A data set by name, partitioned between clients.

    Args:
        name: the data set, one of `fedsaddle list datasets`, or a function of your own as "module:name".
        split: how to partition the rows, one of `fedsaddle list splits`, or a class of your own as "module:name".
        seed: keys the split, the held-out rows and the noise.
        test_share: the share of each client's rows to hold out, if the data set has no test set.
        options: arguments of the loader, such as `{"images": True}`.
        noise: noise to add to the training rows.
        stratify: hold out the same share of each class.
        validation_share: the share of each client's rows to hold out for validation, to choose the best round.
        test_clients: names of clients to test on only.
        **split_options: arguments of the split: `clients`, `alpha`, `column` ...

    Raises:
        BadInput: if a name or an option is unknown, or a value is invalid.
        MissingData: if the files of a public data set are not on this machine; explains how to get them.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.load("digits", split="dirichlet", clients=20, alpha=0.3).count
        20
    """
    known_data, known_split = entry(DATASETS, "name", name), entry(SPLITS, "split", split)
    if options is not None and not isinstance(options, Mapping):
        raise BadInput("options", options, 'give a dictionary, such as {"images": True}')
    if noise is not None and not isinstance(noise, Noise):
        raise BadInput("noise", noise, "give fs.Noise(...)")
    rule = _made("splits", known_split, "split", split, check_options("split", known_split.load(), split_options))
    dataset = _made("datasets", known_data, "name", name, check_options("options", known_data.load(), options or {}))
    assert isinstance(rule, Split)
    assert isinstance(dataset, Dataset)
    data = federate(dataset, rule, seed, test_share, stratify, validation_share, test_clients)
    return data if noise is None else noise.apply(data, seed)


def build_data(config: Config) -> FederatedData:
    """Load the rows of a config and partition them between the clients; in one place, where its algorithm wants it."""
    return build_rows(config, config.run.seed, pooled=_is_centralised(config))


def build_rows(config: RowsConfig, seed: int, pooled: bool = False) -> FederatedData:
    """Load rows and partition them between the clients.

    Args:
        config: [data], [split] and [noise].
        seed: keys the split, the held-out rows and the noise.
        pooled: whether all rows are in one place.
    """
    own = config.data
    known_data = entry(DATASETS, "data.name", own.name)
    known_split = entry(SPLITS, "split.name", config.split.name)
    with within("split"):
        given = check_options("split", known_split.load(), config.split.options())
        rule = _made("splits", known_split, "split.name", config.split.name, given)
    options = own.options()
    if "path" in options:
        options["path"] = str(options["path"])
    with within("data"):
        checked = check_options("data", known_data.load(), options)
        dataset = _made("datasets", known_data, "data.name", own.name, checked)
    assert isinstance(rule, Split)
    assert isinstance(dataset, Dataset)
    if own.minimum_cell > 1 and isinstance(dataset.pending, TableFeatures):
        dataset = replace(dataset, pending=dataset.pending.treated(minimum_cell=own.minimum_cell))
    with within("split"):
        data = federate(dataset, rule, seed, own.test_share, own.stratify, own.validation_share, own.test_clients)
    with within("noise"):
        data = Noise(**config.noise.model_dump()).apply(data, seed)
    if pooled:
        data = data.pooled()
    with within("data"):
        share = own.positives_per_batch
        return data if share is None else data.balanced(share)


def _made(group: str, known: Entry, key: str, name: str, options: Mapping[str, object]) -> object:
    """Call what a name stands for; of other people's code, look at what it gives."""
    if not known.own:
        made: object = known.load()(**options)
        return made
    with user_code_errors(key, name, known.own):
        made = known.load()(**options)
    require_made(group, key, name, made)
    return made


def _is_centralised(config: Config) -> bool:
    """Whether the algorithm runs on all rows in one place; an unknown algorithm is reported later."""
    known = ALGORITHMS.get(config.algorithm.name)
    bound = {} if known is None else known.fixed
    return bool({**config.algorithm.options(), **bound}.get("centralised", False))
