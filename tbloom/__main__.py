"""``python -m tbloom``: the command line."""

import sys

from tbloom.cli import main

sys.exit(main())
