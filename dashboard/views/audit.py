"""Audit: what people changed, newest first, read-only."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from control import selectors
from control.selectors import AuditFilter
from dashboard.panels.chrome import override_title
from dashboard.panels.wording import countdown
from dashboard.views.page import Page, viewer_page

ROWS = 50
_MOST = 2**63 - 1


@viewer_page
def audit(request: HttpRequest, page: Page) -> HttpResponse:
    """Overrides in force on top, then the log, a page at a time, narrowed by text or actor."""
    text, actor = request.GET.get("q", "").strip()[:100], request.GET.get("actor", "").strip()[:150]
    before = request.GET.get("before", "")
    found = selectors.audit_page(
        before=int(before) if before.isascii() and before.isdigit() and int(before) <= _MOST else None,
        limit=ROWS,
        wanted=AuditFilter(text=text, actor=actor),
    )
    latest = selectors.latest_overrides(12)
    context = page.shell("audit") | {
        "rows": found.rows,
        "next_before": found.next_before,
        "is_first": not before,
        "q": text,
        "actor": actor,
        "overrides": [
            {
                "row": row,
                "title": override_title(row.kind, row.target, row.value),
                "left": countdown(row.expires_at.timestamp() - page.now),
                "expires_at": row.expires_at.timestamp(),
            }
            for row in latest
        ],
    }
    return render(request, "dashboard/audit.html", context)
