from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import alluvia
from infra.sources import FUNCTIONS, LIBRARY, Sources
from infra.specs import STACK_NAME
from layers.recipes import LAYERS
from tests.infra.lambda_runtime import Deployed, Machinery
from tests.infra.policies import LakePolicies, lake_policies
from tests.s3server import CREDENTIALS, REGION, S3Server
from tests.samples import lake as lake  # noqa: PLC0414 - a fixture

ROOT = Path(__file__).resolve().parents[2]
CDK_CONTEXT: dict[str, object] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]


@pytest.fixture(scope="session")
def placeholders(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Small stand-ins for the layers, the archive and the handlers: a template does not depend on what they hold."""
    return stand_ins(tmp_path_factory.mktemp("sources"))


def stand_ins(folder: Path) -> Sources:
    def write(path: str, text: str) -> Path:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    functions = {name: folder / name for name in FUNCTIONS}
    layers = {name: folder / f"{name}-layer" for name in (LIBRARY, *(recipe.name for recipe in LAYERS))}
    for name in functions:
        write(f"{name}/functions/{name}/handler.py", f"NAME = '{name}'\n")
    for name in layers:
        write(f"{name}-layer/python/{name}.py", f"NAME = '{name}'\n")
    return Sources(functions, layers, write("job.py", "# job\n"), write("environment.tar.gz", "not one really"))


@pytest.fixture(scope="session")
def assembly(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the synthesised app, with the settings of cdk.json."""
    return synthesise(placeholders, tmp_path_factory.mktemp("assembly"))


@pytest.fixture(scope="session")
def template(assembly: Path) -> dict[str, Any]:
    return read_template(assembly)


def synthesise(sources: Sources, outdir: Path, **settings: str) -> Path:
    from infra.synth import create_app  # takes seconds, and every process imports this module

    context = CDK_CONTEXT | {f"alluvia:{name}": value for name, value in settings.items()}
    create_app(sources, context, str(outdir)).synth()
    return outdir


def read_template(assembly: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((assembly / f"{STACK_NAME}.template.json").read_text(encoding="utf-8"))
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process take the tests that synthesise the app: it takes seconds, too many for `make test-fast`."""
    for item in items:
        if "placeholders" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("synthesis"))
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def machinery(tmp_path_factory: pytest.TempPathFactory) -> Machinery:
    return Machinery(tmp_path_factory.mktemp("lambda"))


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> LakePolicies:
    """What the roles of the stack may do in its bucket, with all that can be switched on."""
    folder = tmp_path_factory.mktemp("policies")  # not `placeholders`: those tests are for another process
    names = ("sql_writes", "uploads", "webhooks", "create_tables", "publishing")
    return lake_policies(read_template(synthesise(stand_ins(folder / "in"), folder, **dict.fromkeys(names, "true"))))


@pytest.fixture
def deployed(machinery: Machinery, s3_server: S3Server, policies: LakePolicies, tmp_path: Path) -> Iterator[Deployed]:
    """The functions on an empty lake, with the services of AWS that moto stands for.

    Each function signs with a key of its own, by which the server knows its role: what the policies of the stack deny
    is refused, and fails the test.
    """
    s3_server.inject()
    bucket = s3_server.new_bucket()
    s3_server.judge(bucket, *policies)
    s3_server.denials()
    uri = f"s3://{bucket}/lake"
    environment = {
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": s3_server.endpoint_url,
        "ALLUVIA_LAKE": uri,
        "ALLUVIA_ENDPOINT_URL": s3_server.endpoint_url,
        "ALLUVIA_MODE": "direct",
        "POWERTOOLS_SERVICE_NAME": "test",
    }
    yield Deployed(alluvia.connect(uri, **s3_server.options), environment, machinery, tmp_path)
    assert s3_server.denials() == []
