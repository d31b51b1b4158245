"""`python -m gcab`."""

import sys

from gcab.cli.main import main

sys.exit(main())
