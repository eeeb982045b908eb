"""Federated learning when the average loss is the wrong objective.

Names are loaded when first used, so that importing the package, and asking the command line for help, costs nothing.

Examples:
    >>> import fedsaddle as fs
    >>> data = fs.load("scanned-digits", split="natural", column="site")
    >>> problem = fs.Supervised(fs.models.logistic_regression(64, 10))
    >>> fs.run(fs.Drfa(problem=problem), data, rounds=2).mixture.shape
    torch.Size([10])
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Threads of a matrix product that wait for each other by spinning make torch many times slower on a busy machine;
# asleep they cost next to nothing. It counts only if torch is imported afterwards, and the user's own setting wins.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _use_installed_backend() -> None:
    """Make matplotlib importable in a script that a notebook starts in an environment without the notebook's backend.

    Pictures are drawn to files and need none.
    """
    backend = os.environ.get("MPLBACKEND", "")
    if backend.startswith("module://"):
        from importlib.util import find_spec

        if find_spec(backend.removeprefix("module://").partition(".")[0] or "-") is None:
            os.environ["MPLBACKEND"] = "agg"


_use_installed_backend()

# Every public name: the module that holds it -> its names. The imports below say the same to type checkers, and a test
# compares them. An algorithm that names itself (`NAMED` in its file) is found without a line here.
_NAMES = {
    "algorithms.aaggff": "AaggFf",
    "algorithms.anderson": "Anderson",
    "algorithms.boosted_trees": "BoostedTrees",
    "algorithms.coda.coda": "Coda CodaPlus",
    "algorithms.coda.codasca": "Codasca",
    "algorithms.delta_fl": "DeltaFl",
    "algorithms.drfa": "Drfa DrfaGa",
    "algorithms.exponential_dro": "ExponentialDro",
    "algorithms.fedavg": "FedAvg",
    "algorithms.fedgda_gt": "FedGdaGt",
    "algorithms.fedmgda": "FedMgda",
    "algorithms.fednova": "FedNova",
    "algorithms.fedsgda": "Estimate Estimator FedSgda MiniBatch Spider Storm",
    "algorithms.fedx.fedx1": "FedX1",
    "algorithms.fedx.fedx2": "FedX2",
    "algorithms.fedx.local_pair": "LocalPair",
    "algorithms.fedx.scores": "ScorePrivacy",
    "algorithms.local_steps": "cohort_size draw_cohort",
    "algorithms.personal": "Personal",
    "algorithms.newton": "Newton",
    "algorithms.propfair": "PropFair",
    "algorithms.protocols": "Algorithm CountsIterations Guarantees HasDual HasLocalSteps HasMixture",
    "algorithms.proxskip": "ProxSkip",
    "algorithms.qfedavg": "QFedAvg",
    "algorithms.scaffold": "Scaffold",
    "algorithms.sgda.extragradient": "Extragradient LocalExtragradient Optimistic",
    "algorithms.sgda.fedsgda_plus": "FedSgdaPlus",
    "algorithms.sgda.fess_gda": "FessGda",
    "algorithms.sgda.local_sgda": "LocalSgda",
    "algorithms.sgda.momentum": "MomentumLocalSgda",
    "algorithms.term": "Term",
    "config.build": "algorithm load",
    "data.arrays": "from_arrays",
    "data.datasets": "from_datasets from_hugging_face",
    "data.describe": "describe",
    "data.federated": "FederatedData federate",
    "data.noise": "Noise",
    "data.pictures": "pictures",
    "data.sets.synthetic": "nonconvex_pl",
    "data.store": "Lazy Stacked",
    "data.table": "Dataset Table",
    "data.tables.own": "from_file from_frame",
    "engines.simulated": "SerialEngine VectorisedEngine",
    "engines.site": "LocalSite Memory",
    "errors": (
        "BadCheckpoint BadInput BadMessage CannotWrite Diverged FedSaddleError MissingData NobodyAnswered "
        "Refused TooFewAnswered"
    ),
    "deployment.deployed_study": "StudyResult",
    "deployment.local_study": "study_at_sites",
    "estimators.classifier": "FederatedClassifier",
    "estimators.regressor": "FederatedRegressor",
    "estimators.survival": "FederatedSurvival",
    "federation.clients": "Batch Clients ClientsState Remembers Site Task merge_repeats",
    "federation.randomness": "ClientKeys",
    "federation.records": "Averaged ExactBounds Holds Parameters PerClient PerSample Pooled UpdateOf",
    "federation.reduction": "Reduction",
    "federation.tasks": "PlannedExchange Release per_step task",
    "federation.wrappers": "Ledger Lossy Metered Wrapper",
    "metrics.inference": "Inference inference likelihood_ratio",
    "metrics.selection": "spread",
    "privacy.private": "Private",
    "privacy.settings": "Privacy",
    "problems.auc": "CompositionalAuc MinimaxAuc",
    "problems.fair": "ClassFair",
    "problems.groups": "GroupFair",
    "problems.known_games": "GaussianMean MatrixGame RobustLeastSquares",
    "problems.games": "NonconvexPl QuadraticGame",
    "problems.minimax": "Minimax",
    "problems.models.transfer": "freeze_ warm_started",
    "problems.pairwise": "PairwiseRisk",
    "problems.protocols": (
        "DualGradient Gradients HasBestDual HasBestResponse HasHessian HasModel KnowsClasses "
        "MeasuresClients "
        "MinimaxProblem MinimisationProblem PairwiseProblem PoolsMeasures PrimalGradient Problem Ranks"
    ),
    "problems.regression": "Cox",
    "problems.robust": "RobustTraining",
    "problems.supervised": "Supervised shares",
    "robust.attacks": "Attack",
    "robust.settings": "Robust",
    "runs.result": "Result",
    "runs.callbacks": "Beginning Callback LambdaCallback",
    "runs.engines": "Processes Ray Serial Vectorised",
    "runs.run": "run",
    "runs.settings": "RunOptions",
    "studies.search": "Choice search",
    "studies.study": "Study StudyWatch study",
    "studies.sweep": "Sweep sweep",
}
# Modules that are public as a whole, by their last name: `fs.losses`.
_MODULES = (
    "data.sets.sklearn_sets",
    "data.splits",
    "errors",
    "metrics.histograms",
    "metrics.measures",
    "metrics.ranking",
    "numerics.optimisers",
    "numerics.projections",
    "numerics.regularisers",
    "numerics.schedules",
    "problems.losses",
    "problems.models",
    "problems.outers",
    "problems.pair_losses",
    "problems.rare_losses",
    "problems.risks",
    "tracking.trackers",
)

_WHERE = {name: home for home, names in _NAMES.items() for name in names.split()}
_WHOLE = {home.rpartition(".")[2]: home for home in _MODULES}
__all__ = sorted([*_WHERE, *_WHOLE])  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from fedsaddle import errors as errors
    from fedsaddle.algorithms.aaggff import AaggFf as AaggFf
    from fedsaddle.algorithms.anderson import Anderson as Anderson
    from fedsaddle.algorithms.boosted_trees import BoostedTrees as BoostedTrees
    from fedsaddle.algorithms.coda.coda import Coda as Coda
    from fedsaddle.algorithms.coda.coda import CodaPlus as CodaPlus
    from fedsaddle.algorithms.coda.codasca import Codasca as Codasca
    from fedsaddle.algorithms.delta_fl import DeltaFl as DeltaFl
    from fedsaddle.algorithms.drfa import Drfa as Drfa
    from fedsaddle.algorithms.drfa import DrfaGa as DrfaGa
    from fedsaddle.algorithms.exponential_dro import ExponentialDro as ExponentialDro
    from fedsaddle.algorithms.fedavg import FedAvg as FedAvg
    from fedsaddle.algorithms.fedgda_gt import FedGdaGt as FedGdaGt
    from fedsaddle.algorithms.fedmgda import FedMgda as FedMgda
    from fedsaddle.algorithms.fednova import FedNova as FedNova
    from fedsaddle.algorithms.fedsgda import Estimate as Estimate
    from fedsaddle.algorithms.fedsgda import Estimator as Estimator
    from fedsaddle.algorithms.fedsgda import FedSgda as FedSgda
    from fedsaddle.algorithms.fedsgda import MiniBatch as MiniBatch
    from fedsaddle.algorithms.fedsgda import Spider as Spider
    from fedsaddle.algorithms.fedsgda import Storm as Storm
    from fedsaddle.algorithms.fedx.fedx1 import FedX1 as FedX1
    from fedsaddle.algorithms.fedx.fedx2 import FedX2 as FedX2
    from fedsaddle.algorithms.fedx.local_pair import LocalPair as LocalPair
    from fedsaddle.algorithms.fedx.scores import ScorePrivacy as ScorePrivacy
    from fedsaddle.algorithms.local_steps import cohort_size as cohort_size
    from fedsaddle.algorithms.local_steps import draw_cohort as draw_cohort
    from fedsaddle.algorithms.newton import Newton as Newton
    from fedsaddle.algorithms.personal import Personal as Personal
    from fedsaddle.algorithms.propfair import PropFair as PropFair
    from fedsaddle.algorithms.protocols import Algorithm as Algorithm
    from fedsaddle.algorithms.protocols import CountsIterations as CountsIterations
    from fedsaddle.algorithms.protocols import Guarantees as Guarantees
    from fedsaddle.algorithms.protocols import HasDual as HasDual
    from fedsaddle.algorithms.protocols import HasLocalSteps as HasLocalSteps
    from fedsaddle.algorithms.protocols import HasMixture as HasMixture
    from fedsaddle.algorithms.proxskip import ProxSkip as ProxSkip
    from fedsaddle.algorithms.qfedavg import QFedAvg as QFedAvg
    from fedsaddle.algorithms.scaffold import Scaffold as Scaffold
    from fedsaddle.algorithms.sgda.extragradient import Extragradient as Extragradient
    from fedsaddle.algorithms.sgda.extragradient import LocalExtragradient as LocalExtragradient
    from fedsaddle.algorithms.sgda.extragradient import Optimistic as Optimistic
    from fedsaddle.algorithms.sgda.fedsgda_plus import FedSgdaPlus as FedSgdaPlus
    from fedsaddle.algorithms.sgda.fess_gda import FessGda as FessGda
    from fedsaddle.algorithms.sgda.local_sgda import LocalSgda as LocalSgda
    from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda as MomentumLocalSgda
    from fedsaddle.algorithms.term import Term as Term
    from fedsaddle.config.build import algorithm as algorithm
    from fedsaddle.config.build import load as load
    from fedsaddle.data import splits as splits
    from fedsaddle.data.arrays import from_arrays as from_arrays
    from fedsaddle.data.datasets import from_datasets as from_datasets
    from fedsaddle.data.datasets import from_hugging_face as from_hugging_face
    from fedsaddle.data.describe import describe as describe
    from fedsaddle.data.federated import FederatedData as FederatedData
    from fedsaddle.data.federated import federate as federate
    from fedsaddle.data.noise import Noise as Noise
    from fedsaddle.data.pictures import pictures as pictures
    from fedsaddle.data.sets import sklearn_sets as sklearn_sets
    from fedsaddle.data.sets.synthetic import nonconvex_pl as nonconvex_pl
    from fedsaddle.data.store import Lazy as Lazy
    from fedsaddle.data.store import Stacked as Stacked
    from fedsaddle.data.table import Dataset as Dataset
    from fedsaddle.data.table import Table as Table
    from fedsaddle.data.tables.own import from_file as from_file
    from fedsaddle.data.tables.own import from_frame as from_frame
    from fedsaddle.deployment.deployed_study import StudyResult as StudyResult
    from fedsaddle.deployment.local_study import study_at_sites as study_at_sites
    from fedsaddle.engines.simulated import SerialEngine as SerialEngine
    from fedsaddle.engines.simulated import VectorisedEngine as VectorisedEngine
    from fedsaddle.engines.site import LocalSite as LocalSite
    from fedsaddle.engines.site import Memory as Memory
    from fedsaddle.errors import BadCheckpoint as BadCheckpoint
    from fedsaddle.errors import BadInput as BadInput
    from fedsaddle.errors import BadMessage as BadMessage
    from fedsaddle.errors import CannotWrite as CannotWrite
    from fedsaddle.errors import Diverged as Diverged
    from fedsaddle.errors import FedSaddleError as FedSaddleError
    from fedsaddle.errors import MissingData as MissingData
    from fedsaddle.errors import NobodyAnswered as NobodyAnswered
    from fedsaddle.errors import Refused as Refused
    from fedsaddle.errors import TooFewAnswered as TooFewAnswered
    from fedsaddle.estimators.classifier import FederatedClassifier as FederatedClassifier
    from fedsaddle.estimators.regressor import FederatedRegressor as FederatedRegressor
    from fedsaddle.estimators.survival import FederatedSurvival as FederatedSurvival
    from fedsaddle.federation.clients import Batch as Batch
    from fedsaddle.federation.clients import Clients as Clients
    from fedsaddle.federation.clients import ClientsState as ClientsState
    from fedsaddle.federation.clients import Remembers as Remembers
    from fedsaddle.federation.clients import Site as Site
    from fedsaddle.federation.clients import Task as Task
    from fedsaddle.federation.clients import merge_repeats as merge_repeats
    from fedsaddle.federation.randomness import ClientKeys as ClientKeys
    from fedsaddle.federation.records import Averaged as Averaged
    from fedsaddle.federation.records import ExactBounds as ExactBounds
    from fedsaddle.federation.records import Holds as Holds
    from fedsaddle.federation.records import Parameters as Parameters
    from fedsaddle.federation.records import PerClient as PerClient
    from fedsaddle.federation.records import PerSample as PerSample
    from fedsaddle.federation.records import Pooled as Pooled
    from fedsaddle.federation.records import UpdateOf as UpdateOf
    from fedsaddle.federation.reduction import Reduction as Reduction
    from fedsaddle.federation.tasks import PlannedExchange as PlannedExchange
    from fedsaddle.federation.tasks import Release as Release
    from fedsaddle.federation.tasks import per_step as per_step
    from fedsaddle.federation.tasks import task as task
    from fedsaddle.federation.wrappers import Ledger as Ledger
    from fedsaddle.federation.wrappers import Lossy as Lossy
    from fedsaddle.federation.wrappers import Metered as Metered
    from fedsaddle.federation.wrappers import Wrapper as Wrapper
    from fedsaddle.metrics import histograms as histograms
    from fedsaddle.metrics import measures as measures
    from fedsaddle.metrics import ranking as ranking
    from fedsaddle.metrics.inference import Inference as Inference
    from fedsaddle.metrics.inference import inference as inference
    from fedsaddle.metrics.inference import likelihood_ratio as likelihood_ratio
    from fedsaddle.metrics.selection import spread as spread
    from fedsaddle.numerics import optimisers as optimisers
    from fedsaddle.numerics import projections as projections
    from fedsaddle.numerics import regularisers as regularisers
    from fedsaddle.numerics import schedules as schedules
    from fedsaddle.privacy.private import Private as Private
    from fedsaddle.privacy.settings import Privacy as Privacy
    from fedsaddle.problems import losses as losses
    from fedsaddle.problems import models as models
    from fedsaddle.problems import outers as outers
    from fedsaddle.problems import pair_losses as pair_losses
    from fedsaddle.problems import rare_losses as rare_losses
    from fedsaddle.problems import risks as risks
    from fedsaddle.problems.auc import CompositionalAuc as CompositionalAuc
    from fedsaddle.problems.auc import MinimaxAuc as MinimaxAuc
    from fedsaddle.problems.fair import ClassFair as ClassFair
    from fedsaddle.problems.games import NonconvexPl as NonconvexPl
    from fedsaddle.problems.games import QuadraticGame as QuadraticGame
    from fedsaddle.problems.groups import GroupFair as GroupFair
    from fedsaddle.problems.known_games import GaussianMean as GaussianMean
    from fedsaddle.problems.known_games import MatrixGame as MatrixGame
    from fedsaddle.problems.known_games import RobustLeastSquares as RobustLeastSquares
    from fedsaddle.problems.minimax import Minimax as Minimax
    from fedsaddle.problems.models.transfer import freeze_ as freeze_
    from fedsaddle.problems.models.transfer import warm_started as warm_started
    from fedsaddle.problems.pairwise import PairwiseRisk as PairwiseRisk
    from fedsaddle.problems.protocols import DualGradient as DualGradient
    from fedsaddle.problems.protocols import Gradients as Gradients
    from fedsaddle.problems.protocols import HasBestDual as HasBestDual
    from fedsaddle.problems.protocols import HasBestResponse as HasBestResponse
    from fedsaddle.problems.protocols import HasHessian as HasHessian
    from fedsaddle.problems.protocols import HasModel as HasModel
    from fedsaddle.problems.protocols import KnowsClasses as KnowsClasses
    from fedsaddle.problems.protocols import MeasuresClients as MeasuresClients
    from fedsaddle.problems.protocols import MinimaxProblem as MinimaxProblem
    from fedsaddle.problems.protocols import MinimisationProblem as MinimisationProblem
    from fedsaddle.problems.protocols import PairwiseProblem as PairwiseProblem
    from fedsaddle.problems.protocols import PoolsMeasures as PoolsMeasures
    from fedsaddle.problems.protocols import PrimalGradient as PrimalGradient
    from fedsaddle.problems.protocols import Problem as Problem
    from fedsaddle.problems.protocols import Ranks as Ranks
    from fedsaddle.problems.regression import Cox as Cox
    from fedsaddle.problems.robust import RobustTraining as RobustTraining
    from fedsaddle.problems.supervised import Supervised as Supervised
    from fedsaddle.problems.supervised import shares as shares
    from fedsaddle.robust.attacks import Attack as Attack
    from fedsaddle.robust.settings import Robust as Robust
    from fedsaddle.runs.callbacks import Beginning as Beginning
    from fedsaddle.runs.callbacks import Callback as Callback
    from fedsaddle.runs.callbacks import LambdaCallback as LambdaCallback
    from fedsaddle.runs.engines import Processes as Processes
    from fedsaddle.runs.engines import Ray as Ray
    from fedsaddle.runs.engines import Serial as Serial
    from fedsaddle.runs.engines import Vectorised as Vectorised
    from fedsaddle.runs.result import Result as Result
    from fedsaddle.runs.run import run as run
    from fedsaddle.runs.settings import RunOptions as RunOptions
    from fedsaddle.studies.search import Choice as Choice
    from fedsaddle.studies.search import search as search
    from fedsaddle.studies.study import Study as Study
    from fedsaddle.studies.study import StudyWatch as StudyWatch
    from fedsaddle.studies.study import study as study
    from fedsaddle.studies.sweep import Sweep as Sweep
    from fedsaddle.studies.sweep import sweep as sweep
    from fedsaddle.tracking import trackers as trackers


def __getattr__(name: str) -> Any:
    if name in _WHOLE:
        return import_module(f"fedsaddle.{_WHOLE[name]}")
    if name in _WHERE:
        return _hinted(getattr(import_module(f"fedsaddle.{_WHERE[name]}"), name))
    home = None if name.startswith("_") else _named_algorithms().get(name)
    if home is None:
        raise AttributeError(f"module 'fedsaddle' has no attribute {name!r}{_meant(name)}")
    return _hinted(getattr(import_module(home), name))


def _hinted(value: object) -> object:
    """A public class, which from now on names the parameter that was meant where it is given an unknown one."""
    if isinstance(value, type):
        import_module("fedsaddle.arguments").hint_keywords_of(value)
    return value


def _meant(name: str) -> str:
    """What somebody meant who asked for a name that is not there: `fs.DRFA` is `fs.Drfa`."""
    if name.startswith("_"):
        return ""
    for algorithm, entry in import_module("fedsaddle.config.registry").ALGORITHMS.items():
        if _plain(algorithm) == _plain(name):
            variant = entry.fixed or entry.defaults or entry.required
            call = f"algorithm({algorithm!r}, problem=...)" if variant else entry.target.partition(":")[2]
            return f"; did you mean fs.{call}?"
    hint: str = import_module("fedsaddle.arguments").did_you_mean(name, [*__all__, *_named_algorithms()])
    return hint and f"; {hint.strip()}"


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_named_algorithms()})


def _named_algorithms() -> dict[str, str]:
    """The classes that the files of `algorithms/` name, and their modules."""
    entries = import_module("fedsaddle.config.registry").ALGORITHMS.values()
    return {kind: home for home, _, kind in (entry.target.partition(":") for entry in entries)}
