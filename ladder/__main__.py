"""``python -m ladder`` is the command ``ladder``; ``python -m ladder doctor`` needs no other package."""

import sys

if sys.argv[1:] == ["doctor"]:
    from ladder.cli import doctor

    sys.exit(doctor.main())

from ladder.cli import main

sys.exit(main())
