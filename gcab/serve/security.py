"""Access control by the token, the host and the origin of a request; and the headers that every answer carries."""

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gcab.errors import GcabError
from gcab.serve.limits import RequestError

SHORTEST_TOKEN = 16
LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
OPEN_PATHS = frozenset(("/", "/healthz", "/favicon.ico"))  # and the page's own files


def is_local(host: str) -> bool:
    """Whether only programs on this machine reach this address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Door:
    """Decides from a request's head alone whether it is admitted."""

    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    further_hosts: Collection[str] = ()  # names a proxy on this machine passes on

    def __post_init__(self) -> None:
        if self.token is None:
            if not is_local(self.host):
                raise GcabError(
                    f"others can reach {self.host or 'this address'}: give a token (--token or GCAB_TOKEN), "
                    "or serve on 127.0.0.1."
                )
        elif len(self.token) < SHORTEST_TOKEN or not all("!" <= character <= "~" for character in self.token):
            raise GcabError(
                f"the token needs at least {SHORTEST_TOKEN} letters, digits or signs without blanks: "
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes a good one."
            )

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Raise `RequestError`, or return."""
        self._check_host(headers)
        if method not in ("GET", "HEAD"):
            check_origin(headers)
        if self.token is not None and path not in OPEN_PATHS and not path.startswith("/page/"):
            self._check_token(headers)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        """A web page whose name was made to mean this machine (DNS rebinding) still sends its own name."""
        if is_local(self.host):
            name = host_name(headers.get("host", ""))
            if name not in LOCAL_NAMES and name != self.host and name not in self.further_hosts:
                raise RequestError(
                    421, "this server answers to localhost only: name it so, or start it with --allow-host."
                )

    def _check_token(self, headers: Mapping[str, str]) -> None:
        kind, _, given = headers.get("authorization", "").partition(" ")
        expected = (self.token or "").encode()
        right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), expected)
        if kind.lower() != "bearer" or not right:
            raise RequestError(
                401,
                "this server needs its token: send the header 'Authorization: Bearer TOKEN'.",
                {"WWW-Authenticate": "Bearer"},
            )


def check_origin(headers: Mapping[str, str]) -> None:
    """A browser says which page makes it send a request; pages from elsewhere may not change anything here."""
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    elsewhere = site not in ("none", "same-origin")
    if origin is not None:
        try:
            parts = urlsplit(origin)
            elsewhere |= (
                parts.scheme not in ("http", "https") or parts.netloc.lower() != headers.get("host", "").lower()
            )
        except ValueError:
            elsewhere = True
    if elsewhere:
        raise RequestError(403, "this request comes from another web page: use the server's own page, or no browser.")


def host_name(header: str) -> str:
    """The name in a Host header, without the port; empty where it is none."""
    try:
        parts = urlsplit(f"//{header}")
        parts.port  # noqa: B018 - raises where it is no number
        return (parts.hostname or "") if parts.netloc == header else ""
    except ValueError:
        return ""
