"""`python -m gcab`."""

import sys

from gcab.cli import main

sys.exit(main())
