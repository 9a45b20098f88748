"""A stack behind TLS: only a server with a valid certificate gets requests."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from yarl import URL

from router.remote.http1 import Client, Unreachable
from tests.support.scripted_service import says, serving

pytestmark = pytest.mark.sockets

REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
HERE = "127.0.0.1"


def certified(folder: Path, address: str) -> tuple[Path, SSLContext]:
    """Make a self-signed certificate; returns its file, and the context to serve with."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    written, secret = folder / "certificate.pem", folder / "key.pem"
    written.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    secured = SSLContext(PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(written, secret)
    return written, secured


async def asked(secured: SSLContext) -> bytes:
    """Ask a service twice; returns what it said, from one connection."""
    async with (
        serving(says(200, b"hello"), secured) as service,
        aclosing(Client(URL(service.url), 2.0)) as client,
    ):
        both = [await (await client.ask(REQUEST)).read(100) for _ in range(2)]
        assert service.connections == 1
        return b" ".join(both)


async def test_a_stack_that_is_trusted_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the certificates the system trusts: `SSL_CERT_FILE` names others."""
    certificate, secured = certified(tmp_path, HERE)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert await asked(secured) == b"hello hello"


@pytest.mark.parametrize("address", [HERE, "127.0.0.2"])
async def test_a_stack_that_proves_nothing_is_not_reached(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown authority, or another host name."""
    certificate, secured = certified(tmp_path, address)
    if address != HERE:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(Unreachable, match="SSLCertVerificationError"):
        await asked(secured)
