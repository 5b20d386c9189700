"""`python tests/ledger --scenarios 5000 --seed 1`: run scenarios and print a table."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ledger.report import main

if __name__ == "__main__":
    sys.exit(main())
