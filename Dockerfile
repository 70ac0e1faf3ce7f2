# The image: one static binary on distroless. scripts/image.sh builds it, with or without a docker engine.
#
#   docker build -t amqp-sidecar .
#   docker buildx build --platform linux/amd64,linux/arm64 …
#
# Both bases are named by the digest of their index of platforms, which Dependabot keeps current: the same commit gives the same
# image, and the same binary here, in a release and by `make build` with this Go.
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:6c2a5538f964f1c82f97ad14988bf05de100d922d159d0e398b54c7b0ca0c6c9 AS build
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

FROM gcr.io/distroless/static:nonroot@sha256:e2e927ec666bae08560abb3c55d0659eceabb657f56b6782ab500a9fc7f555e3
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
HEALTHCHECK --interval=15s --timeout=12s --start-period=5s CMD ["/sidecar", "health", "live"]
ENTRYPOINT ["/sidecar"]
