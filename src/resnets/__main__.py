"""`python -m resnets`."""

import sys

from resnets.cli import main

sys.exit(main())
