"""Over TLS, only a certificate of the right authority is accepted. What no further try mends is not tried again."""

from __future__ import annotations

import socketserver
import ssl
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from tbloom.engine.retries import is_outage
from tests.helpers.localredis import LocalRedis, free_port
from tests.helpers.making import Make, missing, needed
from tests.helpers.stores import EXACT


@pytest.fixture
def folder(tmp_path: Path) -> tuple[trustme.CA, Path]:
    """A folder with the certificates of an authority, and of another one."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    (tmp_path / "garbage.pem").write_text("garbage")
    return authority, tmp_path


async def test_a_certificate_of_the_right_authority_is_accepted(make: Make, folder: Any) -> None:
    """Others are not: below."""
    (authority, path), port = folder, free_port()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(path / "server.pem")
    files = ["--tls-cert-file", f"{path}/server.pem", "--tls-key-file", f"{path}/server.key"]
    files += ["--tls-ca-cert-file", f"{path}/ca.pem", "--tls-auth-clients", "no"]
    server = LocalRedis(needed(), "--tls-port", str(port), *files)
    try:
        server.start()
    except RuntimeError as error:
        if "tls" not in str(error).lower():
            raise
        missing("A server with TLS")
    try:
        seen = make(url=f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={path}/ca.pem")
        assert [True, False] == [await seen.add("a"), await seen.add("a")]
        await seen.aclose()
    finally:
        server.stop()


class _Server(socketserver.ThreadingTCPServer):
    """Shakes hands, if it has a ``tls``, and answers nothing that a client can use."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tls = tls
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError), ExitStack() as stack:
            talk = self.request
            if self.server.tls:
                talk = stack.enter_context(self.server.tls.wrap_socket(talk, server_side=True))
            while talk.recv(1000):
                talk.sendall(b"-ERR unknown command\r\n")


#: Who the server says that it is, the authority that the client trusts, and what the error says.
WRONG = {
    "another authority": ("127.0.0.1", "other", "CERTIFICATE_VERIFY_FAILED"),
    "another host": ("example.com", "ca", "CERTIFICATE_VERIFY_FAILED"),
    "no certificate": ("127.0.0.1", "garbage", "(?i)certificate"),
    "no TLS": (None, "ca", "this port does not speak TLS: use redis://"),
}


@pytest.mark.parametrize(
    ("driver", "scheme"),
    [
        ("sync", "rediss"),
        *(
            pytest.param(*case, marks=pytest.mark.check)
            for case in [
                ("async", "rediss"),
                ("sync", "rediss+cluster"),
                ("async", "rediss+cluster"),
            ]
        ),
    ],
)
@pytest.mark.parametrize("wrong", WRONG)
async def test_what_no_further_try_mends_is_not_tried_again(
    wrong: str, driver: str, scheme: str, name: str, folder: Any
) -> None:
    """The error says what is wrong, at once: to try again takes an hour here. It is no outage, which a crawl would sit out."""
    if redis.__version__ < "6":
        if driver == "async":
            pytest.skip("redis-py 5 does not name the reason")
        if (wrong, scheme) == ("another host", "rediss+cluster"):
            pytest.skip("redis-py 5 checks no host names of a cluster")
    (authority, path), (host, trusted, said), tls = folder, WRONG[wrong], None
    if host:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(tls)
    with _Server(tls) as server:
        url = f"{scheme}://127.0.0.1:{server.server_address[1]}?ssl_ca_certs={path}/{trusted}.pem&ssl_check_hostname=true"
        with pytest.raises(redis.ConnectionError, match=said) as raised:
            await EXACT.awaited(url, name, driver=driver, retry_for=3600).add("a")
        server.shutdown()
    assert not is_outage(raised.value)
