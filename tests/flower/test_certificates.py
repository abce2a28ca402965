"""The certificates and keys of a federation on this machine."""

from __future__ import annotations

import ssl

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedtaco.flower.certificates import write_certificates, write_key


def handshake(folder, authority, hostname):
    """Let a client that trusts ``authority`` connect to a server, both in memory."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "server.crt", folder / "server.key")
    client_context = ssl.create_default_context(cafile=authority)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=hostname)
    waiting = [client, server]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)


def test_a_client_trusts_the_certificate_for_loopback_only(tmp_path):
    write_certificates(tmp_path)
    handshake(tmp_path, tmp_path / "ca.crt", "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(tmp_path, tmp_path / "ca.crt", "fl.example.org")


def test_every_federation_has_an_authority_of_its_own(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_certificates(tmp_path / name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path / "one", tmp_path / "other" / "ca.crt", "127.0.0.1")


def test_private_keys_are_readable_by_their_owner_only(tmp_path):
    write_certificates(tmp_path)
    write_key(tmp_path / "node0")
    for name in ("server.key", "node0"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    private = load_ssh_private_key((tmp_path / "node0").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "node0.pub").read_bytes())
    assert private.public_key().public_numbers() == public.public_numbers()
