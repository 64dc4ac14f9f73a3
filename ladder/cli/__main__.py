"""``python -m ladder.cli`` is the command ``ladder``."""

import sys

from ladder.cli import main

sys.exit(main())
