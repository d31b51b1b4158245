# A CPU image that serves one model: docker build -t gcab . && docker run -p 8000:8000 -e GCAB_TOKEN=... -v "$PWD/birds.gcab:/model" gcab
FROM python:3.12-slim AS build
WORKDIR /build
# The large part first: a change of gcab's own code does not fetch it again.
RUN python -m venv /opt/gcab \
    && /opt/gcab/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.11"
COPY pyproject.toml README.md LICENSE ./
COPY gcab gcab
RUN /opt/gcab/bin/pip install --no-cache-dir ".[export,heic,serve]"

FROM python:3.12-slim
ENV PATH=/opt/gcab/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A new volume takes its owner from the image, and a model in it can then be taught.
RUN useradd --create-home --uid 10001 gcab \
    && install --directory --owner gcab --group gcab /model
COPY --from=build /opt/gcab /opt/gcab
USER 10001
WORKDIR /home/gcab
VOLUME /model
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["gcab"]
CMD ["serve", "/model", "--host", "0.0.0.0", "--port", "8000", "--device", "cpu"]
