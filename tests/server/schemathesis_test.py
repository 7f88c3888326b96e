#!/usr/bin/env python3
"""The server against its own description: requests that schemathesis makes from /openapi.json.

Usage: schemathesis_test.py SLUICE ROOT [--examples N]. Exit code 77: skipped, without schemathesis, which
`make clients` installs.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

SLUICE, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402

KEY = "a-key"
# Fields exclude one another, and prompts may be too long: a schema of each field says neither.
EXCLUDED = "positive_data_acceptance"


def main():
    program = ROOT / "build/clients/schemathesis/bin/schemathesis"
    if not program.exists():
        print("skipped: no schemathesis in build/clients; make clients installs it")
        return 77
    examples = sys.argv[sys.argv.index("--examples") + 1] if "--examples" in sys.argv else "20"
    with (tempfile.TemporaryDirectory() as folder,
          served.Server(str(SLUICE), "--api-key", KEY, key=KEY) as server):
        result = subprocess.run(
            [program, "run", f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {KEY}",
             "--phases", "examples,coverage,fuzzing", "--exclude-checks", EXCLUDED, "--max-examples", examples,
             "--seed", "7", "--request-timeout", "120", "--continue-on-failure", "--no-color"],
            env={**served.ENVIRONMENT, "NO_PROXY": "*"}, cwd=folder)
        status = server.get("/health")[0]
    if status != 200:
        print(f"the server is not healthy: {status}")
        return 1
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
