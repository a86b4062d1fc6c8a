# One image for every process of Sluicegate; docker-compose.yml says which command each service runs.
FROM python:3.11-slim AS build
WORKDIR /app
COPY requirements/runtime.lock requirements/runtime.lock
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements/runtime.lock

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin sluicegate \
    && mkdir -p /var/lib/sluicegate && chown sluicegate /var/lib/sluicegate
COPY --from=build /venv /venv
WORKDIR /app
COPY manage.py pyproject.toml ./
COPY gateway gateway
COPY control control
COPY dashboard dashboard
COPY templates templates
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
VOLUME /var/lib/sluicegate
CMD ["python", "-m", "gateway"]
