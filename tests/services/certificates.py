"""Certificates made for one test run: an authority, a server on loopback, a client, and a stranger's authority."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    authority: Path
    stranger: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir(parents=True)
    _authority(folder, "authority")
    _authority(folder, "stranger")
    _signed(folder, "server", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth")
    _signed(folder, "client", "extendedKeyUsage=clientAuth")
    return certificates_in(folder)


def certificates_in(folder: Path) -> Certificates:
    """Those that were made there."""
    return Certificates(
        authority=folder / "authority.pem",
        stranger=folder / "stranger.pem",
        server=folder / "server.pem",
        server_key=folder / "server.key",
        client=folder / "client.pem",
        client_key=folder / "client.key",
    )


def _authority(folder: Path, name: str) -> None:
    made = ["req", "-x509", *_new_key(folder, name), "-days", "2", "-out", f"{folder}/{name}.pem"]
    _openssl(*made, "-addext", "keyUsage=critical,keyCertSign,cRLSign")


def _signed(folder: Path, name: str, extensions: str) -> None:
    (folder / f"{name}.ext").write_text(extensions + "\n")
    _openssl("req", *_new_key(folder, name), "-out", f"{folder}/{name}.csr")
    signing = ["x509", "-req", "-days", "2", "-in", f"{folder}/{name}.csr", "-extfile", f"{folder}/{name}.ext"]
    by = ["-CA", f"{folder}/authority.pem", "-CAkey", f"{folder}/authority.key", "-CAcreateserial"]
    _openssl(*signing, *by, "-out", f"{folder}/{name}.pem")


def _new_key(folder: Path, name: str) -> list[str]:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{folder}/{name}.key"]
    return [*key, "-subj", f"/CN=mistnet test {name}"]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
