"""The control plane: Django project, slow loop, REST API."""
