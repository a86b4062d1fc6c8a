"""The Django app `dashboard`."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Pages for operators: live frames, charts, overrides, the audit list. It has no tables."""

    name = "dashboard"
    verbose_name = "Sluicegate control room"
