"""From the repository to a cloud assembly: builds what is deployed, then synthesises and checks it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.settings import read_settings
from infra.sources import Sources, build_sources
from infra.specs import STACK_NAME
from infra.stack import AlluviaStack


def main(root: Path) -> None:
    """Synthesises into `cdk.out` under `root`, or where the CDK command line asks for it."""
    outdir = os.environ.get("CDK_OUTDIR", str(root / "cdk.out"))
    context = json.loads((root / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = create_app(build_sources(root, root / "build"), context, outdir)
    app.synth()
    sys.stdout.write(f"synthesised {STACK_NAME} into {outdir}\n")


def create_app(sources: Sources, context: Mapping[str, object], outdir: str) -> App:
    """The app with its one stack. Its `synth` raises RuntimeError on a cdk-nag finding that nobody accepted.

    `context` is cdk.json's: the command line hands the same to the app, with what `-c` overrides, and then wins.
    """
    app = App(outdir=outdir, context=context)
    AlluviaStack(app, STACK_NAME, sources=sources, settings=read_settings(app.node.get_all_context()))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app
