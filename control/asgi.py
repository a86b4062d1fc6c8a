"""What uvicorn serves: `control.asgi:application`. Refuses to start, with one line, where a secret is missing."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")

application = get_asgi_application()

from control import checks  # noqa: E402  # needs the app registry

checks.refuse_to_start()
