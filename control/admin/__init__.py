"""The plain pages where tables are edited by hand; every save, deletion and bulk action goes through a service.

site      sign-in and password change, audited; who gets in at all
base      ServiceAdmin: permissions by role, writes through `services.records`, refusals as messages
forms     PolicyForm: every reason for which the policy would be refused, beside the field
"""

from control.admin import logs, people, policy, tenancy

__all__ = ["logs", "people", "policy", "tenancy"]
