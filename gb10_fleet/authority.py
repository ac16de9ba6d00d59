"""A small authority of certificates: one file that clients trust, and certificates of gateways. Touches no file."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NOBODY = dict.fromkeys(
    (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    ),
    False,
)  # fmt: skip
_EARLIER = timedelta(hours=1)  # a client's clock may be behind


@dataclass(frozen=True)
class Authority:
    """Its certificate is what clients trust; with its key it signs."""

    certificate: str
    key: str


def found(name: str, days: float, now: datetime) -> Authority:
    """Make a new one. It may sign certificates of servers, and no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    made = (
        _begun(subject, subject, key.public_key(), days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**{**_NOBODY, "key_cert_sign": True, "crl_sign": True}), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(made), _private(key))


def signed(authority: Authority, addresses: Sequence[str], days: float, now: datetime) -> str:
    """Return certificate and key for servers at these addresses, as one PEM text."""
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    theirs = serialization.load_pem_private_key(authority.key.encode(), None)
    if not isinstance(theirs, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of this authority is not one that gb10 share makes")
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(each)) for each in addresses])
    made = (
        _begun(_name("gb10 gateway"), issuer.subject, key.public_key(), days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**{**_NOBODY, "digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(theirs.public_key()), critical=False)
        .add_extension(names, critical=False)
        .sign(theirs, hashes.SHA256())
    )
    return _pem(made) + _private(key)


def serves(certificate: str, authority: Authority, addresses: Sequence[str]) -> bool:
    """Tell whether a certificate is of this authority, and for just these addresses."""
    try:
        known = x509.load_pem_x509_certificate(certificate.encode())
        known.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
        names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return {str(each) for each in names.get_values_for_type(x509.IPAddress)} == set(addresses)


def end(certificate: str) -> datetime:
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _EARLIER)
        .not_valid_after(now.astimezone(UTC) + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
