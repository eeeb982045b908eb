"""The lines of FedSGDA's figures: the two estimators with the steps of the paper's tables."""

from __future__ import annotations

from fedsaddle.reproductions.figure import Line, Options

SOURCE = "Xie, Zhang, Zhang, Shen, Qian"
MB, STORM = "FedSGDA-MB", "FedSGDA-STORM"


def minibatch(eta: float, gamma: float) -> Options:
    """Constant steps η and γ."""
    return {"primal_step": eta, "dual_step": gamma}


def storm(c_eta: float, c_gamma: float, c_alpha: float, rho: float) -> Options:
    """`η_t = c_η / (t + 1)^ρ`, γ_t likewise, `α_t = min(1, c_α / (t + 1)^{2ρ})`."""
    alpha = {"name": "power", "c": float(c_alpha), "rho": 2 * rho, "at_most": 1.0}
    return {
        "primal_step": {"name": "power", "c": c_eta, "rho": rho},
        "dual_step": {"name": "power", "c": c_gamma, "rho": rho},
        "estimator": {"name": "storm", "alpha": alpha},
    }


def short(algorithm: str) -> str:
    """MB or STORM."""
    return algorithm.removeprefix("FedSGDA-")


def line(
    label: str, algorithm: str, sampled: int | None, local: int, batch: int, steps: Options, rounds: int, colour: int
) -> Line:
    """S clients a round, K local steps; MB is dashed."""
    options: dict[str, object] = {"local_steps": local, "batch_size": batch, **steps}
    if sampled is not None:
        options["sampled_clients"] = sampled
    return Line(label, algorithm, options, rounds, colour, "--" if algorithm == MB else "-")
