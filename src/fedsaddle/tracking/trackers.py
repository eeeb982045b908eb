"""Callbacks that send a run to TensorBoard, MLflow or Weights & Biases."""

from fedsaddle.tracking.figures import flat_figures
from fedsaddle.tracking.mlflow_tracker import MLflow
from fedsaddle.tracking.tensorboard_tracker import TensorBoard
from fedsaddle.tracking.wandb_tracker import Wandb

__all__ = ["MLflow", "TensorBoard", "Wandb", "flat_figures"]
