"""The command `fedsaddle`, also as `python -m fedsaddle`."""

from fedsaddle.processes import loading

with loading():
    from fedsaddle.cli import main

__all__ = ["main"]

if __name__ == "__main__":  # processes that a command starts import this file, too
    main()
