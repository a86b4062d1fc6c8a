"""Environment -> one frozen Settings. Nothing else in the gateway reads the environment, but for backend credentials.

A wrong value is refused before anything starts, in one line that names the variable. Every secret may come from a
file instead: `<NAME>_FILE` holds its path. docs/settings.md is checked against `VARIABLES` by a test.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from gateway.places import read_place

MIN_SECRET_BYTES = 16
# Values that were printed somewhere and so are no secret: refused whatever their length.
KNOWN_SECRETS = ("changeme", "change-me", "secret", "insecure", "default", "example", "password")

Positive = Annotated[float, Meta(gt=0, le=86_400)]
NotNegative = Annotated[float, Meta(ge=0, le=86_400)]
GatewayId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]


class SettingsRefused(Exception):  # noqa: N818  # named for what happened, as everywhere here
    """A variable is missing or wrong. Its text is one line, without any secret."""

    def __init__(self, variable: str, message: str) -> None:
        super().__init__(f"{variable}: {message}")
        self.variable = variable


class Address(Struct, frozen=True):
    """Where to listen. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        """host:port, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_public(self) -> bool:
        """True unless only this machine can reach it."""
        return self.host not in {"127.0.0.1", "::1", "localhost"}


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that the process is told at its start. Times in seconds, sizes in bytes."""

    key_pepper: bytes
    signing_keys: tuple[bytes, ...]  # the current one first, then the previous one during a rotation
    redis_url: str = "redis://127.0.0.1:6379/0"
    gateway_id: GatewayId = "gateway-1"
    gateways: Annotated[int, Meta(ge=1, le=1000)] = 1
    listen: Address = Address("127.0.0.1", 8080)
    ops_listen: Address = Address("127.0.0.1", 8081)
    state_dir: Path = Path("var")
    drain_s: NotNegative = 30.0
    drain_delay_s: NotNegative = 5.0
    debug: bool = False
    allow_private_backends: bool = True
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    access_log: Literal["stdout", "off"] = "stdout"
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 8 << 20
    buffer_budget_bytes: Annotated[int, Meta(ge=1 << 20)] = 256 << 20
    report_interval_s: Positive = 0.5
    resync_s: Annotated[float, Meta(gt=0, le=5)] = 2.0

    def __repr__(self) -> str:
        """Without any secret: this may end up in a log."""
        return f"Settings(gateway_id={self.gateway_id!r}, listen={self.listen}, ops_listen={self.ops_listen})"

    @property
    def directory(self) -> Path:
        """This gateway's own files."""
        return self.state_dir / f"gateway-{self.gateway_id}"


class Variable(Struct, frozen=True):
    """One environment variable: which field it sets, its default as text, and what it means."""

    name: str
    field: str
    default: str
    meaning: str
    is_secret: bool = False


VARIABLES = (
    Variable(
        "REDIS_URL",
        "redis_url",
        "redis://127.0.0.1:6379/0",
        "Valkey or Redis >= 7.0: `redis://`, `rediss://` or `unix:///path/to.sock`.",
        is_secret=True,
    ),
    Variable(
        "SLUICEGATE_KEY_PEPPER",
        "key_pepper",
        "required",
        "Secret under which API keys are hashed; the control plane's own. At least 16 bytes.",
        is_secret=True,
    ),
    Variable(
        "SLUICEGATE_SIGNING_KEY",
        "signing_key",
        "required",
        "Secret that signs what the planes tell one another. At least 16 bytes.",
        is_secret=True,
    ),
    Variable(
        "SLUICEGATE_SIGNING_KEY_PREVIOUS",
        "signing_key_previous",
        "none",
        "The signing key before the current one: still accepted while it is rotated.",
        is_secret=True,
    ),
    Variable(
        "SLUICEGATE_GATEWAY_ID",
        "gateway_id",
        "gateway-1",
        "Name of this process, unique among the gateways: letters, digits, `_`, `.`, `-`.",
    ),
    Variable(
        "SLUICEGATE_GATEWAYS",
        "gateways",
        "1",
        "How many gateways there are, for the shares until the control plane says so.",
    ),
    Variable(
        "SLUICEGATE_LISTEN",
        "listen",
        "127.0.0.1:8080",
        "Address for callers, `host:port`. Port 0: the system chooses.",
    ),
    Variable(
        "SLUICEGATE_OPS_LISTEN",
        "ops_listen",
        "127.0.0.1:8081",
        "Address for `/livez`, `/readyz` and `/metrics`.",
    ),
    Variable(
        "SLUICEGATE_STATE_DIR",
        "state_dir",
        "var",
        "Directory for the last good snapshot and for spooled usage (`gateway-<id>/` below it).",
    ),
    Variable(
        "SLUICEGATE_DRAIN_S", "drain_s", "30", "Longest time that streams may go on after SIGTERM, seconds."
    ),
    Variable(
        "SLUICEGATE_DRAIN_DELAY_S",
        "drain_delay_s",
        "5",
        "How long after SIGTERM the listener stays open, so that load balancers notice, seconds.",
    ),
    Variable("SLUICEGATE_DEBUG", "debug", "0", "1 for development; refused on a public listener."),
    Variable(
        "SLUICEGATE_ALLOW_PRIVATE_BACKENDS",
        "allow_private_backends",
        "1",
        "0 refuses backends at private and loopback addresses. Link-local ones are always refused.",
    ),
    Variable("SLUICEGATE_LOG_LEVEL", "log_level", "INFO", "DEBUG, INFO, WARNING, ERROR or CRITICAL."),
    Variable(
        "SLUICEGATE_ACCESS_LOG", "access_log", "stdout", "`stdout` or `off`: one JSON line per request."
    ),
    Variable(
        "SLUICEGATE_MAX_BODY_BYTES",
        "max_body_bytes",
        "8388608",
        "Largest request body; larger ones are answered 413.",
    ),
    Variable(
        "SLUICEGATE_BUFFER_BUDGET_BYTES",
        "buffer_budget_bytes",
        "268435456",
        "Memory for bodies and streams in progress; at 95 % new requests are shed.",
    ),
    Variable(
        "SLUICEGATE_REPORT_INTERVAL_S",
        "report_interval_s",
        "0.5",
        "How often this gateway reports, seconds.",
    ),
    Variable(
        "SLUICEGATE_RESYNC_S",
        "resync_s",
        "2",
        "How often published state is read again whatever was pushed, seconds, at most 5.",
    ),
)
_NAME_BY_FIELD = {v.field: v.name for v in VARIABLES}
_TRUE_FALSE = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_LISTEN = re.compile(r"^(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]\s]*)):(?P<port>[0-9]{1,5})$")


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read and check every variable.

    Raises:
        SettingsRefused: naming the first variable that is missing or wrong.
    """
    given = {v.field: text for v in VARIABLES if (text := _text(environ, v)) is not None}
    values: dict[str, object] = dict(given)
    values["key_pepper"] = _secret(given, "key_pepper")
    values["signing_keys"] = _signing_keys(given)
    for name in ("listen", "ops_listen"):
        if name in given:
            values[name] = _address(_NAME_BY_FIELD[name], given[name])
    for name in ("debug", "allow_private_backends"):
        if name in given:
            values[name] = _flag(_NAME_BY_FIELD[name], given[name])
    if "state_dir" in given:
        values["state_dir"] = Path(given["state_dir"])
    if "log_level" in given:
        values["log_level"] = given["log_level"].upper()
    settings = _convert(values)
    _check_together(settings)
    return settings


def _text(environ: Mapping[str, str], variable: Variable) -> str | None:
    """The variable's text, or its file's; empty counts as absent."""
    text = environ.get(variable.name, "").strip()
    path = environ.get(variable.name + "_FILE", "").strip() if variable.is_secret else ""
    if text and path:
        raise SettingsRefused(variable.name, f"set it or {variable.name}_FILE, not both")
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise SettingsRefused(
                variable.name + "_FILE", f"cannot be read ({type(fault).__name__})"
            ) from None
    return text or None


def _secret(given: Mapping[str, str], field: str) -> bytes:
    name, text = _NAME_BY_FIELD[field], given.get(field, "")
    if not text:
        raise SettingsRefused(name, "must be set (it may not be empty)")
    if any(text.lower().startswith(known) for known in KNOWN_SECRETS) or len(set(text)) == 1:
        raise SettingsRefused(
            name, "is a well-known example, not a secret: make one with `openssl rand -hex 32`"
        )
    if len(text.encode()) < MIN_SECRET_BYTES:
        raise SettingsRefused(name, f"needs at least {MIN_SECRET_BYTES} bytes")
    return text.encode()


def _signing_keys(given: Mapping[str, str]) -> tuple[bytes, ...]:
    current = _secret(given, "signing_key")
    if "signing_key_previous" not in given:
        return (current,)
    return (current, _secret(given, "signing_key_previous"))


def _address(name: str, text: str) -> dict[str, object]:
    match = _LISTEN.match(text)
    if match is None or int(match["port"]) > 65_535:
        raise SettingsRefused(name, f"{text!r} is not host:port")
    return {"host": match["v6"] or match["host"] or "0.0.0.0", "port": int(match["port"])}  # noqa: S104  # `:8080` asks for it


def _flag(name: str, text: str) -> bool:
    value = _TRUE_FALSE.get(text.lower())
    if value is None:
        raise SettingsRefused(name, f"{text!r} is neither 1 nor 0")
    return value


def _convert(values: Mapping[str, object]) -> Settings:
    known = {name: value for name, value in values.items() if name in Settings.__struct_fields__}
    try:
        return msgspec.convert(known, Settings, strict=False, dec_hook=_as_given)
    except msgspec.ValidationError as fault:
        message, _, path = str(fault).partition(" - at `$.")
        field = re.split(r"[`.\[]", path)[0]
        raise SettingsRefused(
            _NAME_BY_FIELD.get(field, field), _in_words(message, field, values.get(field))
        ) from None


def _in_words(message: str, field: str, text: object) -> str:
    """The decoder's verdict for a person: what was given, and what is expected instead."""
    if "matching regex" in message:
        return f"{text!r} is no name: 1 to 63 letters, digits, dots, dashes or underscores, a letter or digit first"
    expected, _, got = message.removeprefix("Expected ").partition(", got ")
    if got:
        return f"{text!r} is not {'a whole number' if 'int' in expected else 'a number'}"
    if message.startswith("Expected "):
        return f"{text!r} is out of range: expected {expected.replace('`', '')}"
    choices = ", ".join(get_args(get_type_hints(Settings)[field]))
    return f"{text!r} is none of {choices}"


def _as_given(kind: type, value: object) -> object:
    if isinstance(value, kind):
        return value
    raise NotImplementedError(kind)


def _check_together(settings: Settings) -> None:
    try:
        read_place(settings.redis_url)
    except ValueError as fault:
        raise SettingsRefused("REDIS_URL", str(fault)) from None
    if settings.debug and (settings.listen.is_public or settings.ops_listen.is_public):
        raise SettingsRefused("SLUICEGATE_DEBUG", "is refused on a listener that others can reach")
    if settings.listen.port and settings.listen == settings.ops_listen:
        raise SettingsRefused("SLUICEGATE_OPS_LISTEN", "must differ from SLUICEGATE_LISTEN")
