"""``python -m cvm`` is the command ``cvm``."""

import sys

from cvm.cli import main

sys.exit(main())
