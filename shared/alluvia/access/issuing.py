"""Make tokens, with a private key that never leaves its owner's machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from alluvia.access import registry
from alluvia.access.claims import AGE_SECONDS_MAX, TokenClaims
from alluvia.access.rights import Rights
from alluvia.access.signing import key_id, sign
from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.extras import needing
from alluvia.store import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY = "ALLUVIA_TOKEN_KEY"
"""The variable with a private key itself, as PEM; else keys are files in a folder."""
FOLDER = "ALLUVIA_TOKEN_KEYS"


def key_folder(environment: Mapping[str, str]) -> Path:
    """Return where private keys are files: $ALLUVIA_TOKEN_KEYS, or a folder of the user's own."""
    if environment.get(FOLDER):
        return Path(environment[FOLDER]).expanduser()
    config = environment.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "alluvia" / "token-keys"


def new_key(store: Store, clock: Clock, folder: Path) -> registry.PublicKey:
    """Make a key: its private half in a file that only its owner may read, its public half in the lake."""
    with needing("cli", "making tokens"):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes_raw()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(_file(folder, key_id(public)), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    return registry.add_key(store, clock, public)


def signing_key(store: Store, environment: Mapping[str, str]) -> Ed25519PrivateKey | None:
    """Return the newest private key here whose public half the lake has; None where the lake has no keys.

    Raises `Invalid` where the lake has keys, but this machine none of them.
    """
    ids = registry.key_ids(store)
    if environment.get(KEY):
        private = _private(environment[KEY].encode(), KEY)
        if key_id(private.public_key().public_bytes_raw()) not in ids:
            raise Invalid(f"{KEY}: the lake does not have this key; `alluvia token rotate-key` makes one that it has")
        return private
    folder = key_folder(environment)
    known = [registry.read_key(store, each) for each in ids if _file(folder, each).is_file()]
    newest = max((key for key in known if key is not None), key=lambda key: key.created_ms, default=None)
    if newest is not None:
        return _private(_file(folder, newest.id).read_bytes(), str(_file(folder, newest.id)))
    if ids:
        raise Invalid(
            f"this machine has none of the lake's private keys: {folder} would hold them, ${FOLDER} names another "
            f"folder and ${KEY} a key; `alluvia token rotate-key` makes a new one"
        )
    return None


def ready_key(store: Store, clock: Clock, environment: Mapping[str, str]) -> tuple[Ed25519PrivateKey, Path | None]:
    """Return the key to sign with. A lake without keys gets its first, whose file is returned too.

    Raises `Invalid` as `signing_key` does.
    """
    key, made = signing_key(store, environment), None
    if key is None:
        folder = key_folder(environment)
        made = _file(folder, new_key(store, clock, folder).id)
        key = _private(made.read_bytes(), str(made))
    return key, made


def issue(
    store: Store, clock: Clock, key: Ed25519PrivateKey, rights: Rights, name: str, lifetime_s: int
) -> tuple[str, TokenClaims]:
    """Make a token, and have the lake note what it may do. Returns the token, which is not kept anywhere."""
    if not 0 < lifetime_s <= AGE_SECONDS_MAX:
        raise Invalid("expires: a token lives from a second to ten years")
    now_s = clock.now_ms() // 1000
    claims = TokenClaims(clock.new_id(), name, now_s, now_s + lifetime_s, rights)
    token = sign(claims.plain(), key)
    registry.note_issued(store, clock, claims, key_id(key.public_key().public_bytes_raw()))
    return token, claims


def _file(folder: Path, identity: str) -> Path:
    return folder / f"{identity}.pem"


def _private(pem: bytes, where: str) -> Ed25519PrivateKey:
    with needing("cli", "making tokens"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Invalid(f"{where} is not a private key for Ed25519 in PEM, without a password")
    return key
