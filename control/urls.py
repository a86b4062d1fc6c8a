"""Every path of the web process. The dashboard is included by name: control never imports it."""

from django.urls import include, path

from control import checks
from control.admin.site import room

handler500 = checks.server_error

urlpatterns = [
    path("livez", checks.livez),
    path("readyz", checks.readyz),
    path("admin/", room.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("dashboard.urls")),
]
