"""Ready models of the papers' runs. Any other `nn.Module` will do as well."""

from fedsaddle.problems.models.forest import Forest
from fedsaddle.problems.models.networks import (
    CharacterGru,
    McMahanCnn,
    SmallCnn,
    TutorialCnn,
    Vgg11,
    logistic_regression,
    mlp,
)

__all__ = ["CharacterGru", "Forest", "McMahanCnn", "SmallCnn", "TutorialCnn", "Vgg11", "logistic_regression", "mlp"]
