# The worker of compose.yaml. Everything from outside is pinned by version and hash.
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements/build.txt requirements/build.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m build --wheel --no-isolation --outdir /dist

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 hansard && install -d -o hansard -g hansard /data
COPY requirements/build.txt requirements/run.txt /tmp/
RUN pip install --no-cache-dir --require-hashes -r /tmp/build.txt \
    && pip install --no-cache-dir --require-hashes -r /tmp/run.txt
COPY --from=build /dist /dist
RUN pip install --no-cache-dir --no-deps /dist/*.whl && rm -r /dist /tmp/build.txt /tmp/run.txt
USER hansard
ENV HANSARD_DATA_DIR=/data
VOLUME /data
EXPOSE 8420
ENTRYPOINT ["hansard"]
CMD ["--help"]
