"""Ready models of the papers' runs. Any other `nn.Module` will do as well."""

from fedsaddle.problems.models.papers import CharacterGru as CharacterGru
from fedsaddle.problems.models.papers import McMahanCnn as McMahanCnn
from fedsaddle.problems.models.papers import logistic_regression as logistic_regression
from fedsaddle.problems.models.papers import mlp as mlp
from fedsaddle.problems.models.vgg import Vgg11 as Vgg11
