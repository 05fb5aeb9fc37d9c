"""Certificates of registries, from the places that docker, podman and skopeo read them at."""

import os
import ssl
from pathlib import Path

from bedplate.model.faults import BadInput

SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")  # Debian and Ubuntu; elsewhere certifi's
FOLDERS = (Path("/etc/containers/certs.d"), Path("/etc/docker/certs.d"))  # containers-certs.d(5)


def bundle() -> str | bool:
    """The file of certificates that are believed; True: requests' own way, which heeds REQUESTS_CA_BUNDLE."""
    if os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or not SYSTEM_CA.exists():
        return True
    return str(SYSTEM_CA)


def folder_of(host: str) -> Path | None:
    """The directory with a registry's own certificates; the first that is there counts."""
    own = Path.home() / ".config/containers/certs.d"
    return next((place / host for place in (own, *FOLDERS) if (place / host).is_dir()), None)


def context(host: str) -> ssl.SSLContext | None:
    """What is believed of one registry besides: *.crt; what it is shown: NAME.cert with NAME.key. None: nothing.

    Raises:
        BadInput: such a file is no certificate.
    """
    folder = folder_of(host)
    if folder is None:
        return None
    made = ssl.create_default_context()
    for file in sorted(folder.iterdir()):
        try:
            if file.suffix == ".crt":
                made.load_verify_locations(file)
            elif file.suffix == ".cert":
                made.load_cert_chain(file, file.with_suffix(".key"))
        except (ssl.SSLError, OSError) as fault:
            raise BadInput(f"{file}: no certificate that can be used: {fault}") from None
    return made
