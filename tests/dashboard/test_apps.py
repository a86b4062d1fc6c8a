from django.apps import apps


def test_the_dashboard_is_installed_and_has_no_tables():
    assert not list(apps.get_app_config("dashboard").get_models())
