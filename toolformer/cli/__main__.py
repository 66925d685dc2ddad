"""`python -m toolformer.cli`: the same as the command `toolformer`."""

import sys

from toolformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
