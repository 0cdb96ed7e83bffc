# syntax=docker/dockerfile:1
# The operator's image, and `kubectl runs` for jobs in a cluster:
#   docker build -t registry.example/tenure:0.1.0 .
# The base is a choice: --build-arg PYTHON_IMAGE=... names another one (by digest, where yours must never change).
ARG PYTHON_IMAGE=python:3.13.7-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/tenure
WORKDIR /build
# The packages first: they change less often than the code, and are checked by hash.
COPY requirements/kube.txt requirements/kube.txt
RUN /opt/tenure/bin/pip install --require-hashes -r requirements/kube.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
# What installs is not needed to run; what is compiled now need not be written later.
RUN /opt/tenure/bin/pip install --no-deps --no-build-isolation . \
    && /opt/tenure/bin/pip uninstall -y setuptools pip \
    && /opt/tenure/bin/python -m compileall -q /opt/tenure/lib

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Tenure" \
      org.opencontainers.image.description="Who holds which GPU, until when, and who pays" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/tenure/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /opt/tenure /opt/tenure
# Nobody, by number, so that `runAsNonRoot` can be checked. It writes to volumes only: the root may be read-only.
RUN install -d -o 65532 -g 65532 -m 0700 /var/lib/tenure
USER 65532:65532
WORKDIR /var/lib/tenure
STOPSIGNAL SIGTERM
ENTRYPOINT ["tenure"]
CMD ["--help"]
