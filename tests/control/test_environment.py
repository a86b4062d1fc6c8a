import pytest
from django.core.exceptions import ImproperlyConfigured

from control import environment


def test_sqlite_gets_a_write_ahead_log_and_takes_its_write_lock_at_once():
    settings = environment.database("sqlite:////var/lib/sluicegate/db.sqlite3")
    assert settings["NAME"] == "/var/lib/sluicegate/db.sqlite3"
    assert settings["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in settings["OPTIONS"]["init_command"]
    assert settings["OPTIONS"]["timeout"] == environment.BUSY_TIMEOUT_S


def test_postgresql_is_taken_apart_with_escapes_and_options():
    settings = environment.database("postgresql://us%40er:p%2Fw@db.example:5433/sluice?sslmode=require")
    named = {key: settings[key] for key in ("USER", "PASSWORD", "HOST", "PORT", "NAME")}
    assert named == {"USER": "us@er", "PASSWORD": "p/w", "HOST": "db.example", "PORT": 5433, "NAME": "sluice"}
    assert settings["OPTIONS"]["sslmode"] == "require"


def test_a_socket_directory_is_a_host():
    assert environment.database("postgresql://me@%2Frun%2Fpg/db")["HOST"] == "/run/pg"


@pytest.mark.parametrize(
    "url",
    ["mysql://root:hunter2@h/db", "postgresql://h", "sqlite:///", "nonsense", "postgresql://h:99999/db"],
)
def test_a_wrong_database_url_is_refused_by_name_and_without_its_password(url):
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL") as refused:
        environment.database(url)
    assert "hunter2" not in str(refused.value)


def test_celery_gets_its_own_form_of_a_unix_socket():
    assert environment.broker("unix:///run/v.sock?db=2") == "redis+socket:///run/v.sock?virtual_host=2"
    assert environment.broker("redis://v:6379/0") == "redis://v:6379/0"


@pytest.mark.parametrize("url", ["http://v", "redis://", "", "amqp://v"])
def test_a_wrong_redis_url_is_refused_by_name(url):
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL"):
        environment.broker(url)


def test_the_environment_wins_over_a_file_and_both_win_over_what_make_up_keeps(monkeypatch, tmp_path):
    kept = {"SLUICEGATE_X": "kept"}
    assert environment.read_setting("SLUICEGATE_X", kept) == "kept"
    (tmp_path / "x").write_text("from a file\n")
    monkeypatch.setenv("SLUICEGATE_X_FILE", str(tmp_path / "x"))
    assert environment.read_setting("SLUICEGATE_X", kept) == "from a file"
    monkeypatch.delenv("SLUICEGATE_X_FILE")
    monkeypatch.setenv("SLUICEGATE_X", "given")
    assert environment.read_setting("SLUICEGATE_X", kept) == "given"


def test_a_variable_and_its_file_at_once_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("SLUICEGATE_X_FILE", str(tmp_path / "x"))
    monkeypatch.setenv("SLUICEGATE_X", "given")
    with pytest.raises(ImproperlyConfigured, match="not both"):
        environment.read_setting("SLUICEGATE_X", {})


def test_a_file_that_cannot_be_read_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SLUICEGATE_X_FILE", str(tmp_path / "absent"))
    with pytest.raises(ImproperlyConfigured, match="SLUICEGATE_X_FILE"):
        environment.read_setting("SLUICEGATE_X", {})


def test_an_env_file_is_read_line_by_line_and_its_absence_is_nothing(tmp_path):
    (tmp_path / "secrets.env").write_text("# made by make up\nA=1\nB=x=y\nnothing\n")
    assert environment.read_env_file(tmp_path / "secrets.env") == {"A": "1", "B": "x=y"}
    assert environment.read_env_file(tmp_path / "absent") == {}


def test_missing_short_and_well_known_secrets_are_named_but_never_shown():
    lines = environment.secret_problems(
        {
            "A": "",
            "B": environment.UNSET,
            "C": "k7Qz",
            "D": "x" * 40,
            "E": "changeme-changeme-changeme",
            "F": "k7Qzk7Qzk7Qzk7Qz",
        }
    )
    assert [line.split()[0] for line in lines] == ["A", "B", "C", "D", "E"]
    assert not any("k7Qz" in line or "changeme" in line for line in lines)


def test_a_process_without_a_secret_ends_with_one_line(settings, capsys):
    settings.KEY_PEPPER = ""
    with pytest.raises(SystemExit) as ended:
        environment.demand_secrets()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("sluicegate: SLUICEGATE_KEY_PEPPER")
    assert said.count("\n") == 1
