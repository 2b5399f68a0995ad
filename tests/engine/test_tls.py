"""Redis over TLS: the right authority's certificate is taken, any other refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from tests.helpers.localredis import LocalRedis, free_port
from tests.helpers.making import Make, missing, needed


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem and other.pem, and a server's certificate by each: server.pem and wrong.pem, with their keys."""
    folder = tmp_path_factory.mktemp("tls")
    for name, server in ("ca", "server"), ("other", "wrong"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / f"{name}.pem")
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(folder / f"{server}.key")
        certificate.cert_chain_pems[0].write_to_path(folder / f"{server}.pem")
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
        use("wrong")
        try:
            admin.client_kill_filter(_type="normal", skipme=True)
            for _ in range(2):  # the connection that was open gets lost first
                with pytest.raises(redis.ConnectionError):
                    await seen.add("b")
        finally:
            use("server")
        assert [True, False, False] == [await seen.add(item) for item in "bba"]
