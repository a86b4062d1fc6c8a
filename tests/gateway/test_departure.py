from gateway.departure import Departure


def test_a_watcher_is_told_once():
    told: list[str] = []
    departure = Departure()
    departure.watch(lambda: told.append("left"))
    departure.left()
    departure.left()
    assert told == ["left"]
    assert departure.has_left


def test_who_watches_too_late_is_told_at_once():
    told: list[str] = []
    departure = Departure()
    departure.left()
    departure.watch(lambda: told.append("left"))
    assert told == ["left"]


def test_who_no_longer_cares_is_not_told():
    told: list[str] = []
    departure = Departure()
    departure.watch(lambda: told.append("left"))
    departure.forget()
    departure.left()
    assert told == []
    assert departure.has_left
