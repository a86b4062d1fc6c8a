"""Paths of the control room's pages."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from dashboard.views.audit import audit
from dashboard.views.live import live
from dashboard.views.overrides import backend_override, override_release
from dashboard.views.overview import history, overview

app_name = "dashboard"

urlpatterns = [
    path("", overview, name="overview"),
    path("live/", live, name="live"),
    path("live/history/", history, name="history"),
    path("backends/<str:name>/override/", backend_override, name="backend-override"),
    path("overrides/<str:key>/release/", override_release, name="override-release"),
    path("audit/", audit, name="audit"),
    path("sign-in/", LoginView.as_view(redirect_authenticated_user=True), name="sign-in"),
    path("sign-out/", LogoutView.as_view(next_page="dashboard:sign-in"), name="sign-out"),
]
