"""``python -m ladder.torch script.py``: the same as ``ladder torch``."""

from __future__ import annotations

import argparse
import sys

from ladder.call.torch.command import DESCRIPTION, add_options, run
from ladder.common.terminal import prepare_streams, show_error
from ladder.errors import LadderError


def main() -> int:
    prepare_streams()
    parser = argparse.ArgumentParser(prog="python -m ladder.torch", description=DESCRIPTION)
    add_options(parser)
    try:
        return run(parser.parse_args())
    except LadderError as error:
        show_error(error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
