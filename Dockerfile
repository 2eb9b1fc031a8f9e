# `alluvia serve` in a container; docs/OPERATIONS.md says how to run it.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /source
COPY pyproject.toml requirements.lock README.md LICENSE CHANGELOG.md .gitignore ./
COPY shared shared
COPY functions functions
COPY events/data events/data
RUN uv venv --python /usr/local/bin/python /opt/alluvia \
    && uv pip install --python /opt/alluvia/bin/python --compile-bytecode --constraint requirements.lock --verify-hashes '.[aws,cli,flight]'

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --create-home alluvia && install --directory --owner alluvia --group alluvia /lake
COPY --from=build /opt/alluvia /opt/alluvia
ENV PATH=/opt/alluvia/bin:$PATH ALLUVIA_LAKE=/lake ALLUVIA_AUTH=tokens PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/alluvia
VOLUME /lake
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["alluvia"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
