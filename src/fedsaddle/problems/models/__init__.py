"""Ready models of the papers' runs. Any other `nn.Module` will do as well."""

from fedsaddle.problems.models.papers import CharacterGru, McMahanCnn, SmallCnn, TutorialCnn, logistic_regression, mlp
from fedsaddle.problems.models.vgg import Vgg11

__all__ = ["CharacterGru", "McMahanCnn", "SmallCnn", "TutorialCnn", "Vgg11", "logistic_regression", "mlp"]
