"""Everything that can be named in a config, as plain tables: reading them imports nothing heavy."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

from fedsaddle.errors import BadInput


class Entry(NamedTuple):
    """Where a thing is defined ("module:name"), what it is, and for data its source and licence."""

    target: str
    about: str
    source: str = ""


_DRFA = "Deng, Kamani, Mahdavi 2020"
_SGDA = "Sharma, Panda, Joshi, Varshney 2022"
_FEDSGDA = "Xie, Zhang, Zhang, Shen, Qian"
_CODA = "Yuan, Guo, Xu, Ying, Yang 2021"
_FEDX = "Guo, Jin, Luo, Yang 2023"
_ALG = "fedsaddle.algorithms"
_MOM = f"{_ALG}.sgda.momentum"

ALGORITHMS: dict[str, Entry] = {
    "FedAvg": Entry("fedsaddle.algorithms.fedavg:FedAvg", "average loss; Local SGD", "McMahan et al. 2017"),
    "q-FedAvg": Entry("fedsaddle.algorithms.qfedavg:QFedAvg", "fairness by powers of the losses", "Li et al. 2020"),
    "AFL": Entry("fedsaddle.algorithms.drfa:Afl", "worst mixture of clients, one local step", "Mohri et al. 2019"),
    "DRFA": Entry("fedsaddle.algorithms.drfa:Drfa", "worst mixture of clients, many local steps", f"{_DRFA}, Alg. 1"),
    "DRFA-Prox": Entry("fedsaddle.algorithms.drfa:DrfaProx", "DRFA with a regularised mixture", f"{_DRFA}, Alg. 2"),
    "DRFA-GA": Entry("fedsaddle.algorithms.drfa_ga:DrfaGa", "DRFA with full gradient ascent", f"{_DRFA}, Alg. 3"),
    "Local SGDA": Entry(f"{_ALG}.sgda.local_sgda:LocalSgda", "min-max by local steps of both", f"{_SGDA}, Alg. 1"),
    "Momentum Local SGDA": Entry(f"{_MOM}:MomentumLocalSgda", "the same with momentum", f"{_SGDA}, Alg. 2"),
    "Local SGDA+": Entry(f"{_ALG}.sgda.local_sgda:LocalSgdaPlus", "ascent at a snapshot of x", f"{_SGDA}, Alg. 4"),
    "Momentum Local SGDA+": Entry(f"{_MOM}:MomentumLocalSgdaPlus", "the same with momentum", f"{_SGDA}, Alg. 5"),
    "FedSGDA-MB": Entry(f"{_ALG}.fedsgda:FedSgda", "corrected min-max steps, two exchanges", _FEDSGDA),
    "FedSGDA-STORM": Entry(f"{_ALG}.fedsgda:FedSgdaStorm", "the same with the STORM estimator", _FEDSGDA),
    "FedSGDA-SPIDER": Entry(f"{_ALG}.fedsgda:FedSgdaSpider", "the same with the SPIDER estimator", _FEDSGDA),
    "CODA": Entry(f"{_ALG}.coda.coda:Coda", "stages of min-max, dual computed anew", "Guo et al. 2020"),
    "CODA+": Entry(f"{_ALG}.coda.coda:CodaPlus", "stages of local min-max steps", f"{_CODA}, Alg. 1-2"),
    "CODASCA": Entry(f"{_ALG}.coda.codasca:Codasca", "CODA+ with control variates", f"{_CODA}, Alg. 3-4"),
    "NPA": Entry(f"{_ALG}.coda.coda:Npa", "CODA+ that averages after every step", f"{_CODA}, App. C"),
    "FedX1": Entry(f"{_ALG}.fedx.fedx1:FedX1", "pairwise risks, linear f", f"{_FEDX}, Alg. 1"),
    "FedX2": Entry(f"{_ALG}.fedx.fedx2:FedX2", "pairwise risks, any f", f"{_FEDX}, Alg. 2-3"),
    "Local Pair": Entry(f"{_ALG}.fedx.local_pair:LocalPair", "pairwise risks, own pairs alone", _FEDX),
    "Centralised SGD": Entry(
        f"{_ALG}.fedx.local_pair:CentralisedSgd", "pairwise, all rows in one place, linear f", _FEDX
    ),
    "SOX": Entry(f"{_ALG}.fedx.local_pair:Sox", "pairwise, all rows in one place, any f", "Wang, Yang 2022"),
}
PAIRWISE = ["FedX1", "FedX2", "Local Pair", "Centralised SGD", "SOX"]
MINIMAX = [name for name in ALGORITHMS if "SGDA" in name or "CODA" in name or name == "NPA"]

LOSSES: dict[str, Entry] = {
    "cross-entropy": Entry("fedsaddle.problems.losses:CrossEntropy", "classification with k scores"),
    "logistic": Entry("fedsaddle.problems.losses:Logistic", "classification into 0 and 1 with one score"),
    "square": Entry("fedsaddle.problems.losses:Square", "regression, half the squared error"),
}

PROBLEMS: dict[str, Entry] = {
    "supervised": Entry("fedsaddle.problems.supervised:Supervised", "mean loss of each client; choose a loss"),
    "class-fair": Entry("fedsaddle.problems.fair:ClassFair", "min-max: the worst mixture of classes"),
    "robust": Entry("fedsaddle.problems.robust:RobustTraining", "min-max: a shared perturbation of the features"),
    "auc": Entry("fedsaddle.problems.auc:MinimaxAuc", "min-max: area under the ROC curve, square surrogate"),
    "pairwise": Entry("fedsaddle.problems.pairwise:PairwiseRisk", "pairs of rows; choose a risk and a pair loss"),
    "nonconvex-pl": Entry("fedsaddle.problems.nonconvex_pl:NonconvexPl", "min-max: FedSGDA's simulation; model none"),
}

_RISK, _PAIR = "fedsaddle.problems.risks", "fedsaddle.problems.pair_losses"
RISKS: dict[str, Entry] = {
    "auc": Entry(f"{_RISK}:auc", "AUROC; linear, for FedX1"),
    "partial-auc": Entry(f"{_RISK}:partial_auc", "one-way partial AUROC, KL-OPAUC; temperature"),
    "two-way-partial-auc": Entry(f"{_RISK}:two_way_partial_auc", "temperature and positive_temperature"),
    "average-precision": Entry(f"{_RISK}:average_precision", "area under the precision-recall curve"),
    "p-norm-push": Entry(f"{_RISK}:p_norm_push", "the top of the list; power"),
    "metric": Entry(f"{_RISK}:metric", "distance metric learning; outputs and margin; linear, for FedX1"),
}

PAIR_LOSSES: dict[str, Entry] = {
    "squared-hinge": Entry(f"{_PAIR}:SquaredHinge", "max(0, margin - t)^2; the default"),
    "square": Entry(f"{_PAIR}:Square", "(margin - t)^2"),
    "hinge": Entry(f"{_PAIR}:Hinge", "max(0, margin - t)"),
    "logistic": Entry(f"{_PAIR}:Logistic", "log(1 + exp(-steepness t))"),
    "sigmoid": Entry(f"{_PAIR}:Sigmoid", "1 / (1 + exp(t)), PSM; robust to flipped labels"),
    "barrier-hinge": Entry(f"{_PAIR}:BarrierHinge", "convex, symmetric for small t"),
}

MODELS: dict[str, Entry] = {
    "logistic": Entry("fedsaddle.problems.models.papers:logistic_regression", "linear scores, starting from zero"),
    "mlp": Entry("fedsaddle.problems.models.papers:mlp", "linear layers with ReLU; hidden = [50, 50]"),
    "gru": Entry("fedsaddle.problems.models.papers:CharacterGru", "embedding, GRU, linear scores for each character"),
    "cnn": Entry("fedsaddle.problems.models.papers:McMahanCnn", "the two-convolution network of McMahan et al."),
    "vgg11": Entry(
        "fedsaddle.problems.models.vgg:Vgg11", "VGG11 for small pictures; normalisation = group, none or batch"
    ),
    "densenet121": Entry("fedsaddle.problems.models.medical:densenet121", "DenseNet121 of MONAI; extra [medical]"),
    "resnet18": Entry("fedsaddle.problems.models.medical:resnet18", "ResNet18 of MONAI; extra [medical]"),
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
    "staged": Entry("fedsaddle.numerics.schedules:Staged", "stages = [[150, 0.02], [75, 0.002]]"),
}

ESTIMATORS: dict[str, Entry] = {
    "minibatch": Entry(f"{_ALG}.estimators:MiniBatch", "the mean of the sampled clients' gradients"),
    "storm": Entry(f"{_ALG}.estimators:Storm", "recursive, with weight alpha"),
    "spider": Entry(f"{_ALG}.estimators:Spider", "differences, anew every period rounds"),
}

_SKLEARN = "fedsaddle.data.sets.sklearn_sets"
_UCI = "UCI, shipped with scikit-learn; CC BY 4.0"

DATASETS: dict[str, Entry] = {
    "digits": Entry(f"{_SKLEARN}:digits", "1,797 handwritten digits, 8x8 pixels, 10 classes", _UCI),
    "scanned-digits": Entry(
        f"{_SKLEARN}:scanned_digits", "the digits from 10 sites, one of which scans them upside down; column site", _UCI
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
        "fedsaddle.data.sets.fashion_mnist:fashion_mnist",
        "60,000 + 10,000 pictures of clothes, 28x28 pixels, 10 classes",
        "github.com/zalandoresearch/fashion-mnist; MIT",
    ),
    "cifar10": Entry(
        "fedsaddle.data.sets.cifar:cifar10",
        "50,000 + 10,000 colour pictures, 32x32 pixels, 10 classes; a part of them will do",
        "www.cs.toronto.edu/~kriz/cifar.html; no licence stated",
    ),
    "cifar100": Entry(
        "fedsaddle.data.sets.cifar:cifar100",
        "50,000 + 10,000 colour pictures, 32x32 pixels, 100 fine or 20 coarse classes; a part of them will do",
        "www.cs.toronto.edu/~kriz/cifar.html; no licence stated",
    ),
    "pneumoniamnist": Entry(
        "fedsaddle.data.sets.medmnist:pneumoniamnist",
        "4,708 + 624 chest X-rays of children, 28x28 pixels, with pneumonia or without",
        "medmnist.com; CC BY 4.0",
    ),
    "breastmnist": Entry(
        "fedsaddle.data.sets.medmnist:breastmnist",
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
        "made up by a seed",
    ),
    "file": Entry(
        "fedsaddle.data.files.tables:from_file",
        "your own CSV, Parquet or NumPy .npz file with a target and a client",
        "yours",
    ),
    "pictures": Entry(
        "fedsaddle.data.files.pictures:pictures",
        "your own folder of pictures with a table that names file, label and site",
        "yours",
    ),
}

SPLITS: dict[str, Entry] = {
    "iid": Entry("fedsaddle.data.splits:Iid", "rows dealt out at random, as evenly as possible"),
    "by-class": Entry("fedsaddle.data.splits:ByClass", "one class per client, or a few"),
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
    "robust_accuracy": Entry(f"{_MEASURES}:RobustAccuracy", "under one perturbation in a ball; radius = 0.5"),
}

ENGINES: dict[str, Entry] = {
    "vectorised": Entry("fedsaddle.engines.vectorised:Vectorised", "a chunk of the cohort in one step; the default"),
    "serial": Entry("fedsaddle.engines.serial:Serial", "one client after the other; slow and obvious, the oracle"),
    "nvflare": Entry("fedsaddle.deployment.remote_clients:Deployed", "real sites; see `fedsaddle deploy`"),
}

LISTED = {
    "algorithms": ALGORITHMS,
    "problems": PROBLEMS,
    "losses": LOSSES,
    "risks": RISKS,
    "pair-losses": PAIR_LOSSES,
    "models": MODELS,
    "datasets": DATASETS,
    "splits": SPLITS,
    "measures": MEASURES,
    "engines": ENGINES,
}


def entry(table: dict[str, Entry], key: str, name: str) -> Entry:
    """The entry of that name, or an error that names the nearest."""
    if name in table:
        return table[name]
    near = get_close_matches(name.lower(), [n.lower() for n in table], 1)
    hint = next((f"did you mean {n!r}? " for n in table if near and n.lower() == near[0]), "")
    raise BadInput(key, name, f"{hint}choose one of {', '.join(table)}")


def find(table: dict[str, Entry], key: str, name: str) -> Any:
    """The thing itself."""
    module, _, attribute = entry(table, key, name).target.partition(":")
    return getattr(import_module(module), attribute)
