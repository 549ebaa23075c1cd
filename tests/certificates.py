# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests that use TLS, with the key identifiers that RFC 5280 4.2.1 demands.

Python 3.13 verifies strictly: it refuses a certificate without an Authority Key Identifier, and a
CA without a Key Usage.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_LOCALHOST = x509.SubjectAlternativeName(
    [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
)


@dataclass(frozen=True, slots=True)
class Party:
    """A certificate and its key."""

    x509: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey

    @property
    def certificate(self) -> bytes:
        """The certificate as PEM."""
        return self.x509.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """The key as PEM."""
        return self.private_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `name`.crt and `name`.key into a folder; return both paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return certificate, key


def issue(name: str, issuer: Party | None = None) -> Party:
    """Issue a certificate for localhost, signed by an issuer; without one, a CA's own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer = key if issuer is None else issuer.private_key
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.x509.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca=issuer is None), critical=True)
        .add_extension(_LOCALHOST, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return Party(certificate, key)


def _key_usage(is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
