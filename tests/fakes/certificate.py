"""A certificate for localhost, made by the openssl command for one test run: nothing secret is kept in the project."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def server_context(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context and the file that makes a client trust it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is not installed")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)  # noqa: S603  # fixed arguments
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


def trusting_context(authority: Path) -> ssl.SSLContext:
    """A client's context that trusts that certificate alone."""
    return ssl.create_default_context(cafile=str(authority))
