"""Over TLS, only a certificate of the right authority is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
import trustme

from tests.helpers.localredis import LocalRedis, free_port
from tests.helpers.making import Make, missing, needed


async def test_only_a_certificate_of_the_right_authority_is_accepted(
    make: Make, tmp_path: Path
) -> None:
    authority, other, port = trustme.CA(), trustme.CA(), free_port()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    files = [
        "--tls-cert-file",
        f"{tmp_path}/server.pem",
        "--tls-key-file",
        f"{tmp_path}/server.key",
    ]
    files += ["--tls-ca-cert-file", f"{tmp_path}/ca.pem", "--tls-auth-clients", "no"]
    server = LocalRedis(needed(), "--tls-port", str(port), *files)
    try:
        server.start()
    except RuntimeError as error:
        if "tls" not in str(error).lower():
            raise
        missing("A server with TLS")
    try:
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}"
        seen = make(url=f"{url}/ca.pem")
        assert [True, False] == [await seen.add("a"), await seen.add("a")]
        with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            await make(url=f"{url}/other.pem", resend=False).add("a")
        await seen.aclose()
    finally:
        server.stop()
