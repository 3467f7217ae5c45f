"""`python -m horsies` is the `horsies` command."""

import sys


def main() -> None:
    """The console script. Ctrl-C may come while the command itself is imported."""
    try:
        from horsies.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit("interrupted")
    run()


if __name__ == "__main__":
    main()
