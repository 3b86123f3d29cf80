"""Certificates made by the real openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(*arguments: str | Path) -> str:
    """Run openssl, and give what it says."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Authority:
    """A certificate authority in a folder: `ca.crt`, and what it signs."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.certificate = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        folder.mkdir(parents=True, exist_ok=True)
        new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3")
        extensions = ("-addext", "keyUsage=critical,keyCertSign")
        openssl(
            *new, "-keyout", self._key, "-out", self.certificate, "-subj", f"/CN=Test authority {name}", *extensions
        )

    def sign(self, name: str, *alternative_names: str, client: bool = False) -> tuple[Path, Path]:
        """A certificate and its key; alternative names as openssl writes them (DNS:localhost)."""
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("crt", "key", "csr"))
        new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}")
        openssl(*new, "-keyout", key, "-out", request)
        extensions = self.folder / f"{name}.ext"
        usage = "clientAuth" if client else "serverAuth"
        lines = [f"extendedKeyUsage={usage}"]
        if alternative_names:
            lines.append(f"subjectAltName={','.join(alternative_names)}")
        extensions.write_text("\n".join(lines) + "\n")
        signed = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "3")
        openssl("x509", "-req", "-in", request, "-out", certificate, *signed, "-extfile", extensions)
        return certificate, key


def make_server_files(folder: Path) -> Authority:
    """A folder with `ca.crt`, `server.crt` and `server.key` (of localhost), and unusable ones beside them."""
    authority = Authority(folder)
    authority.sign("other", "DNS:localhost")
    certificate, key = authority.sign("server", "DNS:localhost", "IP:127.0.0.1")
    openssl("ec", "-in", key, "-out", folder / "encrypted.key", "-aes128", "-passout", "pass:x")
    lines = certificate.read_text().splitlines()
    (folder / "damaged.crt").write_text("\n".join([lines[0], *lines[3:]]) + "\n")
    return authority
