"""No change without its audit row: guarded tables refuse every write outside of `writing()`.

`control.audit.change` is what opens `writing()`: it also opens the transaction and leaves the audit row. The guard
covers `save`, `delete`, `QuerySet.update`, `delete`, `bulk_create` and `bulk_update`; raw SQL is left to the database's
own rights. Migrations use historical models and are not guarded.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, NoReturn, TypeVar

from django.db import models

_open: ContextVar[bool] = ContextVar("sluicegate_audited_write", default=False)


class UnauditedWrite(RuntimeError):  # noqa: N818  # a fault of the program, said in two words
    """Somebody wrote to a guarded table without `control.audit.change`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: only inside of control.audit.change, so that it leaves an audit row")


@contextmanager
def writing() -> Iterator[None]:
    """Let guarded tables be written in this block. For `control.audit` alone."""
    token = _open.set(True)
    try:
        yield
    finally:
        _open.reset(token)


def _demand(what: str) -> None:
    if not _open.get():
        raise UnauditedWrite(what)


T = TypeVar("T", bound=models.Model)


class GuardedQuerySet(models.QuerySet[T]):
    """A query set whose writes need `writing()`."""

    def update(self, **values: Any) -> int:  # noqa: ANN401  # Django's own signature
        """Django's, guarded."""
        _demand(f"{self.model.__name__}.update")
        return super().update(**values)

    def delete(self) -> tuple[int, dict[str, int]]:
        """Django's, guarded."""
        _demand(f"{self.model.__name__}.delete")
        return super().delete()

    def bulk_create(self, objs: Iterable[T], *args: Any, **options: Any) -> list[T]:  # noqa: ANN401  # likewise
        """Django's, guarded."""
        _demand(f"{self.model.__name__}.bulk_create")
        return super().bulk_create(objs, *args, **options)

    def bulk_update(self, objs: Iterable[T], fields: Iterable[str], batch_size: int | None = None) -> int:
        """Django's, guarded."""
        _demand(f"{self.model.__name__}.bulk_update")
        return super().bulk_update(objs, fields, batch_size)


class Guarded(models.Model):
    """A row that changes only inside of an audited change."""

    objects = GuardedQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # Django's own signature
        """Django's, guarded."""
        _demand(f"{type(self).__name__}.save")
        super().save(*args, **options)

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:  # noqa: ANN401  # likewise
        """Django's, guarded."""
        _demand(f"{type(self).__name__}.delete")
        return super().delete(*args, **options)


class AppendOnlyQuerySet(GuardedQuerySet[T]):
    """Rows are added, never changed or removed."""

    def update(self, **values: Any) -> NoReturn:  # noqa: ANN401, ARG002  # Django's own signature
        """Never."""
        raise UnauditedWrite(f"{self.model.__name__} is append-only; update")

    def delete(self) -> NoReturn:
        """Never."""
        raise UnauditedWrite(f"{self.model.__name__} is append-only; delete")

    def bulk_update(self, *_: object, **__: object) -> NoReturn:
        """Never."""
        raise UnauditedWrite(f"{self.model.__name__} is append-only; bulk_update")


class AppendOnly(Guarded):
    """A guarded row that is written once."""

    objects: ClassVar[models.Manager[Any]] = AppendOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # Django's own signature
        """Insert; never update."""
        if not self._state.adding:
            raise UnauditedWrite(f"{type(self).__name__} is append-only; save of row {self.pk}")
        super().save(*args, **{**options, "force_insert": True})

    def delete(self, *args: Any, **options: Any) -> NoReturn:  # noqa: ANN401, ARG002  # likewise
        """Never."""
        raise UnauditedWrite(f"{type(self).__name__} is append-only; delete of row {self.pk}")
