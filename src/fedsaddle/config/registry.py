"""The names that a config can use, as plain tables, and the look-up of a name; importing this imports nothing heavy.

A file of `algorithms/` lists its algorithms in a literal table `NAMED`, which is read here as text. A variant of an
algorithm is a separate entry with fixed arguments: AFL is DRFA with one local step.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from fedsaddle.arguments import did_you_mean
from fedsaddle.errors import BadInput
from fedsaddle.files import Json
from fedsaddle.own_code import find_plugin, first_line, is_code, load_code, plugins_of

KINDS = ("minimisation", "minimax", "pairwise")  # of problems


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name: the class or function, and the arguments that it fixes, in the form of a config."""

    target: str = field(kw_only=False)  # the class or function, "module:name"
    about: str = field(kw_only=False)
    source: str = field(default="", kw_only=False)  # the paper, or for data the source and the licence
    kind: str = ""  # of the problem, or of the problem that the algorithm solves: one of KINDS
    fixed: Mapping[str, Json] = field(default_factory=dict)  # arguments that the name fixes
    defaults: Mapping[str, Json] = field(default_factory=dict)  # arguments that a user may change
    required: Mapping[str, str] = field(default_factory=dict)  # arguments that must be given -> an example
    shapes: str = ""  # of a model: the function that takes its shapes from the data, "module:name"
    own: str = ""  # the package or module that defines it; empty: FedSaddle

    def load(self) -> Any:
        """Import the class or function."""
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)

    def bind(self, key: str, name: str, given: Mapping[str, object]) -> dict[str, object]:
        """Merge the given and the fixed arguments; errors begin with `key`."""
        for argument, value in self.fixed.items():
            if argument in given:
                remedy = f"{name} fixes {argument} = {value!r}; leave it out, or choose another name"
                raise BadInput(f"{key}.{argument}", given[argument], remedy)
        for argument, example in self.required.items():
            if argument not in given:
                raise BadInput(f"{key}.{argument}", None, f"{name} needs a value, such as {example}")
        return {**self.defaults, **given, **self.fixed}


def _named_algorithms() -> dict[str, Entry]:
    """The entries of all files of `algorithms/`, in alphabetical order."""
    package = Path(__file__).parents[1]
    found: dict[str, Entry] = {}
    for path in (package / "algorithms").rglob("*.py"):
        _, marker, rest = path.read_text(encoding="utf-8").partition("\nNAMED = ")
        if marker:
            module = ".".join(("fedsaddle", *path.relative_to(package).with_suffix("").parts))
            for name, values in ast.literal_eval(rest.partition("\n}\n")[0] + "\n}").items():
                if name in found:
                    raise ValueError(f"two files name an algorithm {name!r}: {found[name].target} and {module}")
                found[name] = Entry(f"{module}:{values.pop('class')}", values.pop("about"), **values)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


ALGORITHMS: dict[str, Entry] = _named_algorithms()

_TORCH = "fedsaddle.problems.losses"
_RARE = "fedsaddle.problems.rare_losses"
LOSSES: dict[str, Entry] = {
    "cross-entropy": Entry(f"{_TORCH}:cross_entropy", "k scores; weight = [1, 5], label_smoothing, ignore_index"),
    "logistic": Entry(f"{_TORCH}:logistic", "classification into 0 and 1 with one score; pos_weight"),
    "focal": Entry(f"{_RARE}:Focal", "k scores; easy rows count less; focus = 2"),
    "class-balanced": Entry(f"{_RARE}:ClassBalanced", "k scores; rare classes count more; beta = 0.999"),
    "logit-adjusted": Entry(f"{_RARE}:LogitAdjusted", "k scores, shifted by the classes' shares; strength = 1"),
    "square": Entry("fedsaddle.problems.losses:Square", "regression, half the squared error"),
    "poisson": Entry(
        "fedsaddle.problems.losses:Poisson", "counts, the Poisson negative log-likelihood with a log link"
    ),
    "absolute": Entry(f"{_TORCH}:absolute", "regression, the absolute error"),
    "huber": Entry(f"{_TORCH}:huber", "regression, square for errors up to delta, then linear"),
}

_PROBLEM = "fedsaddle.problems"
PROBLEMS: dict[str, Entry] = {
    "supervised": Entry(
        f"{_PROBLEM}.supervised:Supervised", "mean loss of each client; choose a loss", kind="minimisation"
    ),
    "cox": Entry(
        f"{_PROBLEM}.regression:Cox", "times to an event: proportional hazards, a stratum a client", kind="minimisation"
    ),
    "class-fair": Entry(f"{_PROBLEM}.fair:ClassFair", "min-max: the worst-case mixture of classes", kind="minimax"),
    "group-fair": Entry(f"{_PROBLEM}.groups:GroupFair", "min-max: the worst mixture of groups of rows", kind="minimax"),
    "robust": Entry(
        f"{_PROBLEM}.robust:RobustTraining", "min-max: a shared perturbation of the features", kind="minimax"
    ),
    "auc": Entry(f"{_PROBLEM}.auc:MinimaxAuc", "min-max: area under the ROC curve, square surrogate", kind="minimax"),
    "compositional-auc": Entry(
        f"{_PROBLEM}.auc:CompositionalAuc", "min-max: AUC after a step of cross-entropy", kind="minimax"
    ),
    "pairwise": Entry(
        f"{_PROBLEM}.pairwise:PairwiseRisk", "pairs of rows; choose a risk and a pair loss", kind="pairwise"
    ),
    "nonconvex-pl": Entry(f"{_PROBLEM}.games:NonconvexPl", "min-max: FedSGDA's simulation; model none", kind="minimax"),
    "quadratic": Entry(
        f"{_PROBLEM}.games:QuadraticGame", "min-max: a quadratic game on the same rows; model none", kind="minimax"
    ),
}

_RISK, _PAIR = "fedsaddle.problems.risks", "fedsaddle.problems.pair_losses"
RISKS: dict[str, Entry] = {
    "auc": Entry(f"{_RISK}:auc", "AUROC; linear, for FedX1"),
    "partial-auc": Entry(f"{_RISK}:partial_auc", "one-way partial AUROC, KL-OPAUC; temperature"),
    "two-way-partial-auc": Entry(f"{_RISK}:two_way_partial_auc", "temperature and positive_temperature"),
    "average-precision": Entry(f"{_RISK}:average_precision", "area under the precision-recall curve"),
    "p-norm-push": Entry(f"{_RISK}:p_norm_push", "the top of the list; power"),
    "metric": Entry(
        f"{_RISK}:metric", "distance metric learning; outputs and margin; linear, for FedX1", defaults={"outputs": 8}
    ),
}

PAIR_LOSSES: dict[str, Entry] = {
    "squared-hinge": Entry(f"{_PAIR}:SquaredHinge", "max(0, margin - t)^2; the default"),
    "square": Entry(f"{_PAIR}:SquaredMargin", "(margin - t)^2"),
    "hinge": Entry(f"{_PAIR}:Hinge", "max(0, margin - t)"),
    "logistic": Entry(f"{_PAIR}:LogisticMargin", "log(1 + exp(-steepness t))"),
    "sigmoid": Entry(f"{_PAIR}:Sigmoid", "1 / (1 + exp(t)), PSM; robust to flipped labels"),
    "barrier-hinge": Entry(f"{_PAIR}:BarrierHinge", "convex, symmetric for small t"),
}

_MODEL = "fedsaddle.problems.models.networks"
MODELS: dict[str, Entry] = {
    "logistic": Entry(f"{_MODEL}:logistic_regression", "linear scores, starting from zero", shapes=f"{_MODEL}:linear"),
    "mlp": Entry(f"{_MODEL}:mlp", "linear layers with ReLU; hidden = [50, 50]", shapes=f"{_MODEL}:layers"),
    "forest": Entry(
        "fedsaddle.problems.models.forest:Forest",
        "trees that BoostedTrees grows; trees = 240, depth = 4",
        shapes=f"{_MODEL}:layers",
    ),
    "gru": Entry(f"{_MODEL}:CharacterGru", "embedding, GRU, linear scores for each character", shapes=f"{_MODEL}:text"),
    "cnn": Entry(
        f"{_MODEL}:McMahanCnn",
        "the two-convolution network of McMahan et al.",
        shapes=f"{_MODEL}:square_picture",
    ),
    "cnn-3": Entry(
        f"{_MODEL}:TutorialCnn",
        "the three-convolution network of FedSGDA's paper",
        shapes=f"{_MODEL}:square_picture",
    ),
    "small-cnn": Entry(
        f"{_MODEL}:SmallCnn",
        "the same with fewer filters = [8, 16] and units = 64; for few small pictures",
        shapes=f"{_MODEL}:square_picture",
    ),
    "vgg11": Entry(
        f"{_MODEL}:Vgg11",
        "VGG11 for small pictures; normalisation = group, none or batch",
        shapes=f"{_MODEL}:picture",
    ),
    "densenet121": Entry(
        f"{_MODEL}:densenet121", "DenseNet121 of MONAI; extra [medical]", shapes=f"{_MODEL}:sized_picture"
    ),
    "resnet18": Entry(f"{_MODEL}:resnet18", "ResNet18 of MONAI; extra [medical]", shapes=f"{_MODEL}:sized_picture"),
}

REGULARISERS: dict[str, Entry] = {
    "quadratic": Entry("fedsaddle.numerics.regularisers:Quadratic", "-(strength / 2) |u - prior|^2"),
    "kl": Entry("fedsaddle.numerics.regularisers:KullbackLeibler", "-strength KL(u | prior)"),
}

PROJECTIONS: dict[str, Entry] = {
    "ball": Entry("fedsaddle.numerics.projections:Ball", "|w| <= radius"),
    "box": Entry("fedsaddle.numerics.projections:Box", "low <= w_j <= high"),
}

SCHEDULES: dict[str, Entry] = {
    "power": Entry("fedsaddle.numerics.schedules:Power", "c / (t + 1)^rho"),
    "geometric": Entry("fedsaddle.numerics.schedules:Geometric", "first * factor^t"),
    "cosine": Entry("fedsaddle.numerics.schedules:Cosine", "first, down half a cosine over rounds to last"),
    "staged": Entry("fedsaddle.numerics.schedules:Staged", "stages = [[150, 0.02], [75, 0.002]]"),
    "warmup": Entry("fedsaddle.numerics.schedules:Warmup", "shorter steps for some rounds, then those of a schedule"),
}

_OPTIMISERS = "fedsaddle.numerics.optimisers"
LOCAL_OPTIMISERS: dict[str, Entry] = {
    "momentum": Entry(f"{_OPTIMISERS}:Momentum", "SGD with momentum = 0.9; nesterov"),
    "adam": Entry(f"{_OPTIMISERS}:Adam", "Adam; beta1, beta2, epsilon"),
    "adamw": Entry(f"{_OPTIMISERS}:adamw", "Adam with weight_decay = 0.01"),
}
SERVER_OPTIMISERS: dict[str, Entry] = {
    "adam": Entry(f"{_OPTIMISERS}:ServerAdam", "FedAdam's; step, beta1, beta2, adaptivity"),
    "yogi": Entry(f"{_OPTIMISERS}:ServerYogi", "FedYogi's; likewise"),
    "adagrad": Entry(f"{_OPTIMISERS}:ServerAdagrad", "FedAdagrad's; likewise"),
}

_ALGORITHMS = "fedsaddle.algorithms"
ESTIMATORS: dict[str, Entry] = {
    "minibatch": Entry(f"{_ALGORITHMS}.fedsgda:MiniBatch", "the mean of the sampled clients' gradients"),
    "storm": Entry(f"{_ALGORITHMS}.fedsgda:Storm", "recursive, with weight alpha"),
    "spider": Entry(f"{_ALGORITHMS}.fedsgda:Spider", "recursive differences, recomputed every period rounds"),
}

_SKLEARN = "fedsaddle.data.sets.sklearn_sets"
_UCI = "UCI, shipped with scikit-learn; CC BY 4.0"

DATASETS: dict[str, Entry] = {
    "digits": Entry(f"{_SKLEARN}:digits", "1,797 handwritten digits, 8x8 pixels, 10 classes", _UCI),
    "scanned-digits": Entry(
        f"{_SKLEARN}:scanned_digits", "the digits at 10 sites, one of which scans them upside down; column site", _UCI
    ),
    "breast-cancer": Entry(f"{_SKLEARN}:breast_cancer", "569 tumours, 30 features, 2 classes", _UCI),
    "wine": Entry(f"{_SKLEARN}:wine", "178 wines, 13 features, 3 classes", _UCI),
    "iris": Entry(f"{_SKLEARN}:iris", "150 irises, 4 features, 3 classes", _UCI),
    "diabetes": Entry(
        f"{_SKLEARN}:diabetes",
        "442 patients, 10 features, regression",
        "Efron et al. 2004, shipped with scikit-learn; no licence stated",
    ),
    "fashion-mnist": Entry(
        "fedsaddle.data.sets.pictures:fashion_mnist",
        "60,000 + 10,000 pictures of clothes, 28x28 pixels, 10 classes",
        "github.com/zalandoresearch/fashion-mnist; MIT",
    ),
    "cifar10": Entry(
        "fedsaddle.data.sets.pictures:cifar10",
        "50,000 + 10,000 colour pictures, 32x32 pixels, 10 classes; works with a part of the files",
        "www.cs.toronto.edu/~kriz/cifar.html; no licence stated",
    ),
    "cifar100": Entry(
        "fedsaddle.data.sets.pictures:cifar100",
        "50,000 + 10,000 colour pictures, 32x32 pixels, 100 fine or 20 coarse classes; works with a part of the files",
        "www.cs.toronto.edu/~kriz/cifar.html; no licence stated",
    ),
    "pneumoniamnist": Entry(
        "fedsaddle.data.sets.pictures:pneumoniamnist",
        "4,708 + 624 chest X-rays of children, 28x28 pixels, with pneumonia or without",
        "medmnist.com; CC BY 4.0",
    ),
    "breastmnist": Entry(
        "fedsaddle.data.sets.pictures:breastmnist",
        "546 + 156 breast ultrasounds, 28x28 pixels, malignant or not",
        "medmnist.com; CC BY 4.0",
    ),
    "adult": Entry(
        "fedsaddle.data.sets.adult:adult",
        "32,561 + 16,281 people of the 1994 US census, income above 50,000 dollars, with sex and race",
        "UCI dataset 2 'Adult'; CC BY 4.0",
    ),
    "shakespeare": Entry(
        "fedsaddle.data.sets.shakespeare:shakespeare",
        "Shakespeare's plays by speaker, next-character prediction, 86 characters",
        "MIT edition, github.com/TheMITTech/shakespeare; public domain",
    ),
    "nonconvex-pl": Entry(
        "fedsaddle.data.sets.synthetic:nonconvex_pl_table",
        "FedSGDA's simulation: 500 clients of 100 rows (a, b, c) in 100 dimensions; column client",
        "generated from a seed",
    ),
    "file": Entry(
        "fedsaddle.data.tables.own:from_file",
        "your own CSV, Parquet or NumPy .npz file with a target and a client",
        "yours",
    ),
    "pictures": Entry(
        "fedsaddle.data.pictures:pictures",
        "your own folder of pictures with a table that names file, label and site",
        "yours",
    ),
}

SPLITS: dict[str, Entry] = {
    "iid": Entry("fedsaddle.data.splits:Iid", "rows assigned at random, as evenly as possible"),
    "by-class": Entry("fedsaddle.data.splits:ByClass", "one or a few classes per client"),
    "dirichlet": Entry("fedsaddle.data.splits:Dirichlet", "shares of each class drawn from Dirichlet(alpha)"),
    "imbalanced": Entry(
        "fedsaddle.data.splits:Imbalanced",
        "two classes of many, none at two clients, few positives (CODASCA)",
    ),
    "sorted": Entry("fedsaddle.data.splits:Sorted", "a share of the rows sorted by class, the rest at random"),
    "by-column": Entry("fedsaddle.data.splits:ByColumn", "each client holds one value of a column, such as sex"),
    "natural": Entry("fedsaddle.data.splits:Natural", "one client per value of a column, such as the hospital"),
}

_MEASURES = "fedsaddle.metrics.measures"
MEASURES: dict[str, Entry] = {
    "squared_gradient_of_phi": Entry(f"{_MEASURES}:GradientOfPhi", "|∇Φ(x)|², Φ(x) = max_y f(x, y)"),
    "gradient_of_envelope": Entry(f"{_MEASURES}:GradientOfEnvelope", "of Φ's Moreau envelope; smoothing = λ"),
    "duality_gap": Entry(f"{_MEASURES}:DualityGap", "max_y f - min_x f, for convex-concave f"),
    "worst_class_accuracy": Entry(f"{_MEASURES}:WorstClassAccuracy", "over all clients' rows"),
    "worst_client_auroc": Entry(f"{_MEASURES}:WorstClientAuroc", "the least AUROC of a client; least = 5 rows a class"),
    "robust_accuracy": Entry(f"{_MEASURES}:RobustAccuracy", "under one perturbation in a ball; radius = 0.5"),
}

ENGINES: dict[str, Entry] = {
    "vectorised": Entry("fedsaddle.engines.simulated:VectorisedEngine", "many clients in one step; the default"),
    "processes": Entry("fedsaddle.engines.workers:Distributed", "worker processes on this machine"),
    "ray": Entry("fedsaddle.engines.workers:Distributed", "workers on many machines, with Ray; extra [ray]"),
    "serial": Entry("fedsaddle.engines.simulated:SerialEngine", "one client after the other; the slow reference"),
    "nvflare": Entry("fedsaddle.deployment.remote_clients:RemoteClients", "real sites; see `fedsaddle deploy`"),
}

LISTED = {
    "algorithms": ALGORITHMS,
    "problems": PROBLEMS,
    "losses": LOSSES,
    "risks": RISKS,
    "pair-losses": PAIR_LOSSES,
    "models": MODELS,
    "schedules": SCHEDULES,
    "local-optimisers": LOCAL_OPTIMISERS,
    "server-optimisers": SERVER_OPTIMISERS,
    "datasets": DATASETS,
    "splits": SPLITS,
    "measures": MEASURES,
    "engines": ENGINES,
}


# Groups of entry points, `fedsaddle.NAME`, and the tables that they add to; all of them take `module:name`, too.
GROUPS: dict[str, Mapping[str, Entry]] = {
    "algorithms": ALGORITHMS,
    "problems": PROBLEMS,
    "losses": LOSSES,
    "risks": RISKS,
    "pair_losses": PAIR_LOSSES,
    "models": MODELS,
    "datasets": DATASETS,
    "splits": SPLITS,
    "measures": MEASURES,
    "regularisers": REGULARISERS,
    "projections": PROJECTIONS,
    "schedules": SCHEDULES,
    "estimators": ESTIMATORS,
}


def entry(table: Mapping[str, Entry], key: str, name: object, group: str = "") -> Entry:
    """Look up a name: one of the table, `module:name`, or one that an installed package adds.

    Code of others is imported here, and must be what its group is of. The error for an unknown name suggests the
    nearest one. `group` is that of a table which is not among `GROUPS`.
    """
    if not isinstance(name, str):
        raise BadInput(key, name, f"give a name, one of {', '.join(table)}")
    if name in table:
        return table[name]
    group = group or group_of(table)
    if group and is_code(name):
        return _own(group, key, name, name, name.partition(":")[0])
    found = find_plugin(group, key, name) if group else None
    if found is not None:
        return _own(group, key, name, found.target, found.package)
    names = [*table, *dict.fromkeys(one.name for one in (plugins_of(group) if group else ()) if one.name not in table)]
    raise BadInput(key, name, f"{did_you_mean(name, names)}choose one of {', '.join(names)}")


def keys_of_algorithm(name: object) -> set[str] | None:
    """The keys that [algorithm] may have; None for an unknown name, or one that takes any key."""
    try:
        known = entry(ALGORITHMS, "algorithm.name", name)
    except BadInput:
        return None
    parameters = inspect.signature(known.load()).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return None
    return {"name", "local_layers", "anderson", *parameters} - {"problem", *known.fixed}


def refuse_keys_of_others(section: str, name: str, given: Mapping[str, object]) -> None:
    """Refuse a key that is a parameter of other algorithms, and name some."""
    own = keys_of_algorithm(name)
    for key, value in given.items():
        if own is None or key in own:
            continue
        others = [other for other in ALGORITHMS if key in (keys_of_algorithm(other) or ())]
        if others:
            some = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            raise BadInput(f"{section}.{key}", value, f"is a parameter of {some}; {name} has none: remove it")


def with_brought(table: Mapping[str, Entry], group: str = "") -> dict[str, Entry]:
    """The table, followed by the entries that installed packages add, with their targets; nothing is imported."""
    others = plugins_of(group or group_of(table)) if group or group_of(table) else ()
    added = {one.name: Entry(one.target, one.target, one.package, own=one.package) for one in others}
    return {**table, **{name: known for name, known in added.items() if name not in table}}


def group_of(table: Mapping[str, Entry]) -> str:
    """The group of entry points that adds to a table; empty: none."""
    return next((group for group, known in GROUPS.items() if known is table), "")


def _own(group: str, key: str, name: str, target: str, brings: str) -> Entry:
    """The entry of user code."""
    try:
        code, found = load_code(key, target)
    except BadInput as reason:
        if name == target:
            raise
        remedy = f"{brings} brings it as {target!r}: {reason.remedy}"
        raise BadInput(key, name, remedy) from reason
    from fedsaddle.config.code_kinds import kind_of

    kind = kind_of(group, key, name, found)
    return Entry(f"{code.module}:{code.attribute}", first_line(found), brings, kind=kind, own=brings)


def find(table: Mapping[str, Entry], key: str, name: object, group: str = "") -> Any:
    """Look up an entry and import its class or function."""
    return entry(table, key, name, group).load()
