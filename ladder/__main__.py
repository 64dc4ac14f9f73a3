"""``python -m ladder`` is the command ``ladder``; ``python -m ladder doctor`` needs no other package."""

import sys

if sys.argv[1:] == ["doctor"]:
    from ladder.cli import doctor
    from ladder.common.closing import run_until_closed

    sys.exit(run_until_closed(doctor.main))

from ladder.cli import main

sys.exit(main())
