"""The CDK app's entry point: `make synth`, or the CDK command line through cdk.json.

It needs no Docker, no credentials and no node but its own. To deploy, in an account that `cdk bootstrap` has prepared:
`npx aws-cdk@2 deploy`, with settings such as `-c alluvia:alarm_email=…` (see infra/settings.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    # A script's folder comes first on the path, where this one's modules would hide others of the same name.
    sys.path[0] = str(ROOT)

    from infra.synth import main

    main(ROOT)
