"""`python -m fedsaddle`: the command line."""

from fedsaddle.cli import main

if __name__ == "__main__":  # processes that a command starts import this file, too
    main()
