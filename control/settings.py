"""Django's settings, all from the environment (docs/settings.md).

Importing them never fails for a missing secret: servers, workers and commands that need one refuse to start then, with
one line (`environment.demand_secrets`).
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from control import environment
from gateway.contract import keys

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = Path(os.environ.get("SLUICEGATE_STATE_DIR") or BASE_DIR / "var").resolve()

# What `make up` generated serves commands typed by hand as well; the environment wins.
_kept = environment.read_env_file(STATE_DIR / "secrets.env")


def _setting(name: str, default: str = "") -> str:
    return environment.read_setting(name, _kept, default)


def _flag(name: str, *, default: bool = False) -> bool:
    word = _setting(name).strip().lower()
    if word in ("", "1", "0", "true", "false", "yes", "no", "on", "off"):
        return default if word == "" else word in ("1", "true", "yes", "on")
    raise ImproperlyConfigured(f"{name}: expected 1 or 0, not {word!r}")


DEBUG = _flag("SLUICEGATE_DEBUG")
SECRET_KEY = _setting("SLUICEGATE_SECRET_KEY", environment.UNSET)
KEY_PEPPER = _setting("SLUICEGATE_KEY_PEPPER")
SIGNING_KEY = _setting("SLUICEGATE_SIGNING_KEY")
SIGNING_KEY_PREVIOUS = _setting("SLUICEGATE_SIGNING_KEY_PREVIOUS")
GATEWAY_URL = _setting("SLUICEGATE_GATEWAY_URL", "http://127.0.0.1:8080").rstrip(
    "/"
)  # what tenants' snippets show
ALLOW_PRIVATE_BACKENDS = _flag("SLUICEGATE_ALLOW_PRIVATE_BACKENDS", default=True)
KEY_ENVIRONMENT = "live"  # the word inside of every key: sg_live_...

PUBLIC_URL = _setting("SLUICEGATE_PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")
_public = urlsplit(PUBLIC_URL)
if _public.scheme not in ("http", "https") or not _public.hostname:
    raise ImproperlyConfigured(f"SLUICEGATE_PUBLIC_URL: expected http(s)://host, not {PUBLIC_URL!r}")
IS_HTTPS = _public.scheme == "https"
ALLOWED_HOSTS = [_public.hostname, "localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]

INSTALLED_APPS = [
    "control.apps.ControlConfig",
    "dashboard",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
    "axes",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "control.assets.AssetsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "control.urls"
ASGI_APPLICATION = "control.asgi.application"
APPEND_SLASH = True
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
# Django's forms render inline styles nowhere; the admin's own templates come from the app folders.
FORM_RENDERER = "django.forms.renderers.DjangoTemplates"

# --- stores -------------------------------------------------------------------------------------------------------

DATABASES: dict[str, dict[str, Any]] = {
    "default": environment.database(_setting("DATABASE_URL") or f"sqlite:///{STATE_DIR / 'db.sqlite3'}")
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = _setting("REDIS_URL") or f"unix://{STATE_DIR / 'valkey' / 'valkey.sock'}"
VALKEY_TIMEOUT_S = 0.25  # of every call to Valkey: saving never waits for it longer than that
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# --- people -------------------------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "dashboard:sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_ENABLE_ADMIN = False  # its tables are not a lever: a change there would have no audit row
AXES_VERBOSE = False

# --- browsers -----------------------------------------------------------------------------------------------------

_cookie = "__Host-sluicegate-" if IS_HTTPS else "sluicegate-"
SESSION_COOKIE_NAME = _cookie + "session"
CSRF_COOKIE_NAME = _cookie + "csrf"
LANGUAGE_COOKIE_NAME = _cookie + "language"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = IS_HTTPS
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = LANGUAGE_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = LANGUAGE_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
SECURE_SSL_REDIRECT = IS_HTTPS
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if IS_HTTPS else None
SECURE_HSTS_SECONDS = 31_536_000 if IS_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = IS_HTTPS
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
# The digest is that of the empty string: plotly.js creates one empty <style> element.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, _EMPTY_STYLE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "object-src": [NONE],
    }
}

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True  # in place, in an image as in a checkout: nothing is collected
WHITENOISE_AUTOREFRESH = DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},  # nothing is ever uploaded
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

# --- language and time --------------------------------------------------------------------------------------------

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]

# --- Celery (control.celery) --------------------------------------------------------------------------------------

CELERY_BROKER_URL = environment.broker(REDIS_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": keys.CELERY_PREFIX,
    "visibility_timeout": 3600,  # longer than any task (CELERY_TASK_TIME_LIMIT)
    "socket_connect_timeout": 1.0,
    "socket_timeout": 5.0,  # longer than the worker's blocking read of 1 s
    "health_check_interval": 5,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_TIMEOUT = 1.0
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_STORE_ERRORS_EVEN_IF_IGNORED = False
CELERY_TASK_TIME_LIMIT = 1800
CELERY_TASK_SOFT_TIME_LIMIT = 1740
CELERY_TASK_DEFAULT_QUEUE = "work"
CELERY_TASK_ROUTES = {"control.tasks.tick": {"queue": "loop"}}
CELERY_TASK_PUBLISH_RETRY = False  # beat tries again a second later anyway
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BEAT_MAX_LOOP_INTERVAL = 1.0
CELERY_BEAT_SCHEDULE_FILENAME = str(STATE_DIR / "celerybeat-schedule")
CELERY_BEAT_SCHEDULE = {
    "tick": {"task": "control.tasks.tick", "schedule": 1.0, "options": {"expires": 1, "queue": "loop"}}
}
CELERY_TIMEZONE = "UTC"

# --- logs: one JSON object a line ---------------------------------------------------------------------------------

LOG_LEVEL = _setting("SLUICEGATE_LOG_LEVEL", "INFO").upper()
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
if LOG_LEVEL not in _LEVELS:
    raise ImproperlyConfigured(
        f"SLUICEGATE_LOG_LEVEL: expected one of {', '.join(_LEVELS)}, not {LOG_LEVEL!r}"
    )
_shared_processors: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]
structlog.configure(
    processors=[*_shared_processors, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {
            "()": "structlog.stdlib.ProcessorFormatter",
            "foreign_pre_chain": _shared_processors,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        "axes": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
    },
}
