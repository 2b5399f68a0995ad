"""`make lint`: fails if pyright knows the types of less than 99 % of tbloom's public names; lists the other ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

LEAST = 0.99


def main() -> int:
    call = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    call += ["--ignoreexternal", "--verifytypes", "tbloom"]
    environment = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    known = json.loads(done.stdout)["typeCompleteness"]
    score = known["completenessScore"]
    print(f"pyright knows the types of {score:.1%} of the public names")
    if score >= LEAST:
        return 0
    print(*(each["name"] for each in known["symbols"] if not each["isTypeKnown"]), sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
