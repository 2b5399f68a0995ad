"""Redis over TLS: the right authority's certificate is taken, any other refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import redis

from tests.helpers.localredis import LocalRedis, free_port
from tests.helpers.making import Make, missing, needed


def _certificate(folder: Path, name: str, *options: str) -> str:
    """Makes NAME.key and NAME.pem; returns the latter's path."""
    paths = [str(folder / f"{name}.{ending}") for ending in ("key", "pem")]
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *new, "-keyout", paths[0], "-out", paths[1], *options],
        check=True,
        capture_output=True,
    )
    return paths[1]


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, other.pem, and the server's certificate, from the former."""
    if not which("openssl"):
        missing("The command openssl")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        # From Python 3.13 on, a certificate must say whether it signs others.
        _certificate(
            folder, name, "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign"
        )
    signed = ["-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key")]
    name = ["-subj", "/CN=redis", "-addext", "subjectAltName=IP:127.0.0.1"]
    name += ["-addext", "basicConstraints=critical,CA:FALSE"]
    _certificate(folder, "server", *name, *signed)
    return folder


@pytest.fixture(scope="module")
def tls_port(authorities: Path) -> Iterator[int]:
    """The TLS port of a server."""
    port = free_port()
    files = ["--tls-cert-file", f"{authorities}/server.pem", "--tls-key-file"]
    files += [f"{authorities}/server.key", "--tls-ca-cert-file", f"{authorities}/ca.pem"]
    options = ["--tls-port", str(port), *files, "--tls-auth-clients", "no"]
    server = LocalRedis(needed("redis-server"), *options)
    try:
        server.start()
    except RuntimeError as error:
        missing(f"A redis-server with TLS ({error})")
    yield port
    server.stop()


@pytest.fixture
def tls_url(tls_port: int, authorities: Path) -> Any:
    """Makes the URL for a client that trusts that authority only."""

    def url(authority: str, host: str = "127.0.0.1") -> str:
        return f"rediss://{host}:{tls_port}/0?ssl_ca_certs={authorities}/{authority}.pem"

    return url


async def test_another_authority_is_not(make: Make, tls_url: Any) -> None:
    with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        await make(url=tls_url("other"), resend=False).add("a")


async def test_a_wrong_certificate_for_a_while_loses_nothing(
    make: Make, tls_url: Any, authorities: Path
) -> None:
    """Open connections stay; new ones are refused until the right certificate is back."""

    def use(name: str) -> None:
        files = [f"{authorities}/{name}.pem", "tls-key-file", f"{authorities}/{name}.key"]
        admin.execute_command("CONFIG", "SET", "tls-cert-file", *files)

    seen = make(url=tls_url("ca"), resend=False)
    with redis.Redis.from_url(tls_url("ca")) as admin:
        assert await seen.add("a")
        use("other")
        try:
            admin.client_kill_filter(_type="normal", skipme=True)
            for _ in range(2):  # the connection that was open gets lost first
                with pytest.raises(redis.ConnectionError):
                    await seen.add("b")
        finally:
            use("server")
        assert [True, False, False] == [await seen.add(item) for item in "bba"]
