"""The ASGI application for callers: finds the endpoint, knows the caller, reads the body, hands over to `proxy`.

In this order, so that what can be refused early is: path and method, key, drain and overload of this gateway, body,
model, tier. Everything that the caller did wrong is a `CallerError`, answered here and nowhere else.
"""

from gateway.app.application import App

__all__ = ["App"]
