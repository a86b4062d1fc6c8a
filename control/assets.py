"""Static files under ASGI: whitenoise's own answer is a synchronous stream, which Django warns of at every file.

Files are ours and small (the largest has about a megabyte), so they are answered whole.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]  # it has no types


class AssetsMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # likewise
    """whitenoise, answering whole files."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:  # noqa: ANN401  # whitenoise has no types here
        """One file, or one range of it, or 304."""
        found = static_file.get_response(request.method, request.META)
        body = b""
        if found.file is not None:
            with found.file as file:
                body = file.read()
        response = HttpResponse(body, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response
