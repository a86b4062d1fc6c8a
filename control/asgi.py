"""What uvicorn serves: `control.asgi:application`. Refuses to start, with one line, where a setting is wrong."""

import os
import sys

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")

try:
    django.setup(set_prefix=False)
except ImproperlyConfigured as error:
    sys.stderr.write(f"sluicegate: {error}\n")
    raise SystemExit(2) from None

from control import checks  # needs the app registry

checks.refuse_to_start()
application = ASGIHandler()
