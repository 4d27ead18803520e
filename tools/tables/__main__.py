"""`python -m tools.tables [ROOT]`: make the tables and pictures of README and docs again from results/."""

import sys

from tools.tables.pages import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
