"""What all our admin pages share: roles decide, services write, refusals are told in words and change nothing."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.utils.translation import ngettext

from control.admin.forms import PolicyForm
from control.admin.site import access, actor
from control.services import ServiceRefused, records

if TYPE_CHECKING:
    from django.forms import ModelForm

    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class ServiceAdmin(Base):
    """A table that admins edit and others see."""

    form: "type[ModelForm[Any]]" = PolicyForm
    list_per_page = 50
    show_full_result_count = False
    list_select_related: ClassVar[bool | list[str] | tuple[str, ...]] = True
    fixed_fields: tuple[str, ...] = ()  # can't be changed after creation: others know the thing by them

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever has a staff role sees it."""
        return access(request).may_view

    def has_view_permission(self, request: HttpRequest, obj: object | None = None) -> bool:  # noqa: ARG002  # Django's own signature
        """Likewise."""
        return access(request).may_view

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Admins."""
        return access(request).may_edit

    def has_change_permission(self, request: HttpRequest, obj: object | None = None) -> bool:  # noqa: ARG002  # likewise
        """Admins."""
        return access(request).may_edit

    def has_delete_permission(self, request: HttpRequest, obj: object | None = None) -> bool:  # noqa: ARG002  # likewise
        """Admins."""
        return access(request).may_edit

    def get_readonly_fields(self, request: HttpRequest, obj: Any | None = None) -> tuple[str, ...]:  # noqa: ANN401  # likewise
        """What a thing is known by stays as it is."""
        fields = tuple(super().get_readonly_fields(request, obj))
        return (*fields, *self.fixed_fields) if obj is not None else fields

    def save_model(
        self,
        request: HttpRequest,
        obj: models.Model,
        form: "ModelForm[Any]",  # noqa: ARG002  # Django's own signature
        change: bool,  # noqa: ARG002, FBT001  # likewise
    ) -> None:
        """Through the service."""
        records.write(actor(request), obj)

    def delete_model(self, request: HttpRequest, obj: models.Model) -> None:
        """Through the service."""
        records.remove(actor(request), obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Each row through the service, all or none."""
        with records.together():
            for row in queryset:
                records.remove(actor(request), row)

    def changeform_view(self, request: HttpRequest, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # likewise
        """Django's; what a service refuses (somebody else was quicker) is told, and the page comes again."""
        try:
            return super().changeform_view(request, *args, **options)
        except ServiceRefused as refusal:
            return self._told(request, refusal)

    def delete_view(self, request: HttpRequest, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # likewise
        """Likewise."""
        try:
            return super().delete_view(request, *args, **options)
        except ServiceRefused as refusal:
            return self._told(request, refusal)

    def changelist_view(self, request: HttpRequest, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # likewise
        """Likewise, for actions."""
        try:
            return super().changelist_view(request, *args, **options)
        except ServiceRefused as refusal:
            return self._told(request, refusal)

    def _told(self, request: HttpRequest, refusal: ServiceRefused) -> HttpResponseBase:
        self.message_user(request, str(refusal), messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())

    def set_fields(self, request: HttpRequest, queryset: QuerySet[Any], **values: object) -> None:
        """For actions: give each chosen row these values, through the service, all or none."""
        with records.together():
            changed = 0
            for row in queryset:
                for name, value in values.items():
                    setattr(row, name, value)
                changed += records.write(actor(request), row).is_changed
        self.message_user(request, ngettext("%d row changed.", "%d rows changed.", changed) % changed)


class ReadOnlyAdmin(ServiceAdmin):
    """A table that nobody edits by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  # Django's own signature
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object | None = None) -> bool:  # noqa: ARG002  # likewise
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object | None = None) -> bool:  # noqa: ARG002  # likewise
        """Nobody."""
        return False
