# syntax=docker/dockerfile:1
# The image: one static binary on distroless. scripts/image.sh builds it, with or without a docker engine.
#
#   docker build -t amqp-sidecar .
#   docker buildx build --platform linux/amd64,linux/arm64 …
#
# The compiler is named exactly: the same commit gives the same binary, here, in a release and by `make build` with this Go.
ARG BASE=gcr.io/distroless/static:nonroot

FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
ARG GOPROXY
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
ARG COMMIT=unknown
# The flags are the Makefile's. The compiler runs on the builder's platform and needs no emulation for another one.
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH make build OUT=/out/sidecar VERSION="$VERSION" COMMIT="$COMMIT"

# A tag, so that a build gets the base's latest certificates. Pin it with
# --build-arg BASE=gcr.io/distroless/static:nonroot@sha256:…; releases record the digest they took in their provenance.
FROM ${BASE}
ARG VERSION=dev
ARG COMMIT=unknown
ARG CREATED
ARG SOURCE
LABEL org.opencontainers.image.title="amqp-sidecar" \
      org.opencontainers.image.description="Takes messages from RabbitMQ, POSTs them to the service beside it and settles them by its answer" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.source="$SOURCE"
COPY --from=build /out/sidecar /sidecar
# Numbers: Kubernetes cannot check runAsNonRoot for a name.
USER 65532:65532
# Health and metrics. The control listener (9091) is for this container alone.
EXPOSE 9090
# live, not ready: an engine that replaces unhealthy containers must not do so because the broker is away.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/sidecar", "health", "live"]
ENTRYPOINT ["/sidecar"]
