"""``python -m dali_like`` runs the ``dali-like`` command."""

from __future__ import annotations

import sys

from dali_like.cli import main

if __name__ == "__main__":
    sys.exit(main())
