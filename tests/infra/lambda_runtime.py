"""Functions as Lambda runs them: AWS's own runtime client, which takes events from an API and posts the answers to it.

A process finds its own code, its own layers and the client, and no other package. The layers are those of the recipes,
from the lock file, built for this machine's processor and Python. The runtime's own boto3 is not there: the core layer
brings it, in the locked version.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import threading
import time
import uuid
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import alluvia
from infra import specs
from infra.sources import LIBRARY, stage_functions
from infra.specs import Spec
from layers.build import PACKAGE_FOLDER, build_layer, build_library
from layers.recipes import LAYERS, Machine

ROOT = Path(__file__).parents[2]
MACHINE = Machine(platform.machine(), ".".join(map(str, sys.version_info[:2])))
CLIENT = ("awslambdaric", "simplejson", "snapshot-restore-py")
SECONDS_MAX = 120
NEXT = "/2018-06-01/runtime/invocation/next"
MODULES = """
import json, sys
from importlib import import_module
given = json.load(sys.stdin)
sys.path[:0] = given["path"]
handler = import_module(given["module"]).handler
cold = sorted(sys.modules)
for event in given["events"]:
    handler(event, None)
with open(given["answers"], "w") as file:
    json.dump({"cold": cold, "warm": sorted(sys.modules)}, file)
"""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The modules that a process had loaded before the first event, and after the last."""

    cold: list[str]
    warm: list[str]


class Failed(Exception):
    """The function ended with an error, as Lambda reports it."""


class RuntimeApi(ThreadingHTTPServer):
    """The API that a runtime client asks for the next event."""

    daemon_threads = True

    def __init__(self, seconds: int) -> None:
        super().__init__(("127.0.0.1", 0), _Runtime)
        self.seconds = seconds
        self.events: SimpleQueue[Any] = SimpleQueue()
        self.answers: SimpleQueue[Any] = SimpleQueue()


class _Runtime(BaseHTTPRequestHandler):
    server: RuntimeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert self.path == NEXT
        body = json.dumps(self.server.events.get()).encode()
        self.send_response(200)
        self.send_header("Lambda-Runtime-Aws-Request-Id", str(uuid.uuid4()))
        self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + self.server.seconds) * 1000)))
        self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:f:live")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        found = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null")
        self.server.answers.put(found if self.path.endswith("/response") else Failed(found))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Machinery:
    """Starts functions, each in a new process."""

    def __init__(self, folder: Path) -> None:
        lock = ROOT / "requirements.lock"
        built = {recipe.name: build_layer(recipe, lock=lock, build=folder, machine=MACHINE) for recipe in LAYERS}
        built[LIBRARY] = build_library(
            [ROOT / "shared" / "alluvia"], build=folder, python_version=MACHINE.python_version
        )
        self._layers = {name: layer / PACKAGE_FOLDER for name, layer in built.items()}
        self._functions = stage_functions(ROOT, folder, MACHINE.python_version)
        # An interpreter without packages, for the processes that a function starts as well.
        venv.create(folder / "bare", with_pip=False)
        self._python = folder / "bare" / "bin" / "python"
        self._client = folder / "client"
        self._client.mkdir()
        for file in (file for name in CLIENT for file in distribution(name).files or ()):
            link = self._client / file.parts[0]
            if file.parts[0] not in ("..", "__pycache__") and not link.exists():
                link.symlink_to(Path(str(file.locate())).parents[len(file.parts) - 1] / file.parts[0])

    def path(self, spec: Spec) -> list[str]:
        """Return where a function finds its code and its packages."""
        return [str(self._functions[spec.folder]), *(str(self._layers[name]) for name in spec.layers)]

    def services(self, spec: Spec, names: Sequence[str]) -> list[str]:
        """Return the services of AWS, of some, that a function can open a client of."""
        code = f"""
import sys
sys.path[:0] = {self.path(spec)!r}
import boto3
print(*sorted(set(boto3.session.Session().get_available_services()) & set({[*names]!r})))
"""
        done = subprocess.run([str(self._python), "-I", "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def loaded(self, spec: Spec, events: Sequence[Any], environment: Mapping[str, str], folder: Path) -> Loaded:
        """Return the modules that a function loads for events, without a runtime client."""
        answers = folder / "answers.json"
        given = {
            "path": self.path(spec),
            "module": f"functions.{spec.folder}.handler",
            "events": list(events),
            "answers": str(answers),
        }
        done = subprocess.run(
            [str(self._python), "-I", "-c", MODULES],
            input=json.dumps(given),
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder / "none"), "TMPDIR": str(folder), **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr
        return Loaded(**json.loads(answers.read_text()))

    @contextmanager
    def running(self, spec: Spec, environment: Mapping[str, str], folder: Path) -> Iterator[Function]:
        """Start a function's process; it waits for events."""
        api = RuntimeApi(spec.timeout_seconds)
        threading.Thread(target=api.serve_forever, daemon=True).start()
        code, *layers = self.path(spec)
        given = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder / "none"),
            "TMPDIR": str(folder),
            "PYTHONPATH": ":".join([code, *layers, str(self._client)]),
            "LAMBDA_TASK_ROOT": code,
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": spec.folder,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory_mb),
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{spec.folder}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "2026/11/20/[1]0",
            "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
            **environment,
        }
        with (folder / "log").open("w+") as log:
            command = [str(self._python), "-m", "awslambdaric", f"functions.{spec.folder}.handler.handler"]
            process = subprocess.Popen(command, env=given, cwd=code, stdout=log, stderr=subprocess.STDOUT)
            try:
                yield Function(api, process, folder / "log")
            finally:
                process.kill()  # as Lambda does it with one that it does not need any more
                process.wait()
                api.shutdown()
                api.server_close()


@dataclass(frozen=True, slots=True)
class Function:
    """A process of a function."""

    api: RuntimeApi
    process: subprocess.Popen[bytes]
    log: Path

    def call(self, event: Any) -> Any:
        """Return the function's answer. Raises `Failed` with the error that it ends with."""
        self.api.events.put(event)
        for _ in range(SECONDS_MAX * 20):
            if not self.api.answers.empty():
                answer = self.api.answers.get()
                if isinstance(answer, Failed):
                    raise answer
                return answer
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(f"no answer: {self.log.read_text()}")


def role_of(spec: Spec) -> str:
    """Return the name of a function's role, as the stack gives it."""
    (name,) = (name for name, value in vars(specs).items() if value is spec)
    return name.title()


@dataclass(frozen=True, slots=True)
class Deployed:
    """The functions on a lake of their own."""

    lake: alluvia.Lake
    environment: Mapping[str, str]
    machinery: Machinery
    folder: Path

    @contextmanager
    def running(self, spec: Spec, **settings: str) -> Iterator[Function]:
        """Start a new process of a function, with the access key of its role."""
        environment = {"AWS_ACCESS_KEY_ID": role_of(spec), **self.environment, **settings}
        with self.machinery.running(spec, environment, self.folder) as function:
            yield function

    def run(self, spec: Spec, *events: Any, **settings: str) -> list[Any]:
        """Hand events to a new process of a function, one after another; return its answers."""
        with self.running(spec, **settings) as function:
            return [function.call(event) for event in events]

    def loaded(self, spec: Spec, *events: Any, **settings: str) -> Loaded:
        """Return the modules that a new process of a function loads for events."""
        environment = {"AWS_ACCESS_KEY_ID": role_of(spec), **self.environment, **settings}
        return self.machinery.loaded(spec, events, environment, self.folder)

    def ids(self, table: str) -> list[str]:
        """Return the ids of a table's events, in order."""
        return sorted(self.lake.table(table).scan(["event_id"]).read_all()["event_id"].to_pylist())
