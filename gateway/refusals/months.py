"""When the next month begins (UTC), from epoch seconds alone: clocks and calendars are not for this layer.

Civil-calendar arithmetic after Howard Hinnant, "chrono-compatible low-level date algorithms".
"""

_DAY_S = 86_400
_ERA_DAYS = 146_097  # 400 years
_EPOCH_DAYS = 719_468  # from 0000-03-01 to 1970-01-01


def _year_and_month(days: int) -> tuple[int, int]:
    days += _EPOCH_DAYS
    era, day_of_era = divmod(days, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153  # months since March
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month


def _days(year: int, month: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
    return (
        era * _ERA_DAYS
        + year_of_era * 365
        + year_of_era // 4
        - year_of_era // 100
        + day_of_year
        - _EPOCH_DAYS
    )


def next_month(epoch_s: float) -> float:
    """Epoch seconds of the first instant of the month after the one that `epoch_s` is in."""
    year, month = _year_and_month(int(epoch_s // _DAY_S))
    return float(_days(year + month // 12, month % 12 + 1) * _DAY_S)
