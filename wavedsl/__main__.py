"""`python -m wavedsl`."""

import sys

from wavedsl.cli import main

if __name__ == "__main__":
    sys.exit(main())
