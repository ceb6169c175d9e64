# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.mutants [FIRST] [END]``: try the drawn mutants with these numbers, and print the results."""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants.campaign import candidates, copy_checkout, run
from tests.mutants.mutate import draw
from tests.mutants.test_mutants import COUNT, SEED

first, end = int(sys.argv[1]) if sys.argv[1:] else 0, int(sys.argv[2]) if sys.argv[2:] else COUNT
killers: Counter[str] = Counter()
with tempfile.TemporaryDirectory(prefix="utvm-mutants-") as folder:
    for result in run(copy_checkout(Path(folder)), draw(candidates(), COUNT, SEED)[first:end]):
        killers[result.killer] += 1
        print(f"{result.killer:5} {result.mutant.name}", flush=True)
print(dict(killers))
