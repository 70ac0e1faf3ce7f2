# Run `make` to see what there is. Everything a target needs beyond Go, git and make it sets up itself.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Outside a git checkout (a release tarball) the binary says "dev" and "unknown".
# The tag v1.2.3 is version 1.2.3, as in the names of images and charts.
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null || echo dev))
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
# Nothing here speaks HTTP/2: without it the binary, and with it what a sidecar keeps in memory, is half a megabyte smaller.
TAGS := nethttpomithttp2
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
OUT ?= bin/sidecar

# print-X is the value of X, for scripts.
.PHONY: print-%
print-%:
	@echo "$($*)"

##@ Use

.PHONY: build
build: ## build bin/sidecar, one static binary
	@# The same commit, platform and compiler give the same bytes wherever they are built: no path, no state of the checkout.
	CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -tags "$(TAGS)" -ldflags "$(LDFLAGS)" -o $(OUT) ./cmd/sidecar

PREFIX ?= /usr/local
INSTALLED = $(addprefix $(DESTDIR)$(PREFIX)/,bin/sidecar share/man/man1/sidecar.1 share/bash-completion/completions/sidecar \
  share/zsh/site-functions/_sidecar share/fish/vendor_completions.d/sidecar.fish)

.PHONY: install
install: $(OUT) ## install the binary, its manual page and the completions of three shells below PREFIX (/usr/local), in DESTDIR; builds only what is missing
	@set -- $(INSTALLED); install -D -m 755 $(OUT) $$1; install -D -m 644 <($(OUT) man) $$2; \
	  for shell in bash zsh fish; do install -D -m 644 <($(OUT) completion $$shell) $$3; shift; done
	@printf '%s\n' $(INSTALLED)

$(OUT):
	@$(MAKE) build

.PHONY: uninstall
uninstall: ## remove what make install has installed
	rm -f $(INSTALLED)

.PHONY: image
image: ## build the container image amqp-sidecar:dev, with a docker engine or without one (ARGS='-t NAME:TAG -o FILE.tar -p linux/arm64')
	@scripts/image.sh build $(ARGS)

.PHONY: demo
demo: build ## watch messages on a private broker: 200, 503 then 200, 425 then 200, 500 until it is parked and brought back, one for an app that is away; then orders and their messages in one transaction of a private PostgreSQL, and one over HTTP (KEEP=1 leaves it running)
	@scripts/demo.sh

##@ Work on it

.PHONY: check
check: build ## before each commit: lint of what changed, the tests of what changed, without the race detector; a minute (BASE=origin/main)
	@scripts/check.sh

.PHONY: test
test: build ## all tests, on a private broker and database; minutes (PKG=./internal/flow/ ARGS='-run TestX' narrow it, RACE=all: everything has the race detector, the sidecar under test too)
	@scripts/test.sh

.PHONY: slowest
slowest: ## the slowest packages and tests of the last make test (N=50)
	@scripts/slowest.sh $(N)
	@scripts/figures.sh --last-run

.PHONY: test-alerts
test-alerts: ## the alert rules by promtool, the dashboard and the runbook; needs no broker
	@scripts/need.sh promtool prometheus
	@go test -count=1 $(ARGS) ./test/metrics/

.PHONY: test-metrics
test-metrics: build ## a real Prometheus scrapes sidecars to which everything happens: every alert fires, every query of the dashboard has data; a minute
	@PKG=./test/ ARGS='-run TestMetricsInUse -v $(ARGS)' scripts/test.sh

.PHONY: test-brokers
test-brokers: build ## the tests that talk to a broker, against RabbitMQ 3.10, 4.0 and 4.3 (VERSIONS='4.0 4.3', PKG and ARGS narrow it)
	@scripts/test-brokers.sh

.PHONY: test-producers
test-producers: build ## a message of each client library that docs/producers.md names, sent by the library itself, to five apps; as root, a minute
	@scripts/producers.sh test

.PHONY: test-image
test-image: ## build the image and see that it is small, locked down, reproducible, handles a message and drains
	@scripts/image.sh test

.PHONY: test-compose
test-compose: ## the services of docker-compose.yml handle a message that Prometheus sees; with a docker engine, or without one as root
	@scripts/compose.sh test

.PHONY: test-charts
test-charts: build ## the Helm charts, with Helm 3 and 4: what they render, what they refuse; needs no cluster, some minutes the first time (ARGS='-run TestBadValues')
	@scripts/charts.sh

.PHONY: test-kubernetes
test-kubernetes: ## the charts and the sidecar in pods, on a real Kubernetes of one node that it sets up itself; Linux and root (ARGS='-run TestRollout -v' narrows, KUBECONFIG takes another cluster)
	@scripts/kubernetes.sh

.PHONY: test-release
test-release: ## the archives of a release, with checksums and SBOMs, into dist; their programs are those of make build
	@scripts/release.sh test

.PHONY: sim
sim: ## 10,000 seeds of the sidecar against a model of the broker under virtual time (SEEDS=… FROM=…; SEED=n replays one with its log, up to AGAIN=20 times until it fails)
	@scripts/sim.sh

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (default 10m), one after the other, or FUZZTOTAL seconds in all; needs no broker (TARGETS='dispatch|FuzzLoad' narrows)
	@scripts/fuzz.sh

.PHONY: vuln
vuln: ## known vulnerabilities in what the binary is made of; needs the database (VULNDB=https://… or file:///… names another)
	@scripts/vuln.sh

.PHONY: lint
lint: ## import arrows, linters, formatting, go.mod, shell scripts; changes nothing
	@scripts/lint.sh

.PHONY: fmt
fmt: ## rewrite Go sources in the project's format
	@scripts/golangci.sh fmt

.PHONY: generate
generate: ## rewrite generated files (docs/configuration.md, tables of the Helm charts)
	go generate ./...

# The storms of test/chaos: the flags of each kind. A second line is a second run.
# As many faults as meet each kind twice, and as few messages as these need.
CHAOS_faults := run -faults 62 -messages 4000 -warm-up 500 -liveness 200 -stretch 0.25 -outbox 700 -rollback 80 -publish 400
# Each kind of fault that concerns one queue once, and one that concerns all, beside linters that compute.
CHAOS_queues := queues -messages 1000 -faults 8 -ordered 3 -keys 300 -within 5s \
  -kinds channel-close,queue-delete,queue-redeclare,queue-purge,path-fails,path-hangs,sidecar-kill,sidecar-term
CHAOS_order := queues -queues 0 -ordered 1 -replicas 2 -messages 50000 -keys 1000 -faults 10 -rate 500
# Each kind of fault that concerns the attempts, which the sidecar remembers there. Such queues need RabbitMQ 4.3.
CHAOS_native := run -topology native -max-retries 5 -messages 1500 -warm-up 300 -liveness 100 -never 5 -outbox 0 -rollback 0 -publish 0 \
  -faults 7 -stretch 0.2 -kinds cut,close-consumer,sidecar-kill,sidecar-term,app-kill,broker-kill,redrive
# Each kind of fault that takes messages of a batch back once.
CHAOS_batches := run -gather 25 -concurrency 4 -rate 1000 -messages 2000 -warm-up 300 -liveness 100 -outbox 0 -rollback 0 -publish 0 \
  -faults 6 -kinds cut,close-consumer,sidecar-kill,sidecar-term,sidecar-hurry,broker-kill
CHAOS_cuts := run -rate 1000 -messages 20000 -warm-up 300 -liveness 100 -outbox 0 -rollback 0 -publish 0 -faults 100 -kinds cut,close-consumer
CHAOS_cuts_again := $(CHAOS_cuts) -gather 25 -concurrency 4
CHAOS_selftest := selftest

KIND ?= faults
KINDS := faults queues order native batches cuts selftest

.PHONY: chaos
chaos: build ## a storm of faults and a judge that reads the ledgers: KIND=faults (each kind twice, three sources; 4 minutes), queues (faults of one of seven queues), order, native, batches, cuts, selftest (does the judge find each deliberate bug?), or several; docs/testing.md says more (ARGS='-seed 7 -queue-type classic', ARGS=-h for all)
	@$(if $(filter-out $(KINDS),$(KIND)),$(error KIND=$(KIND): use one or more of $(KINDS)))$(if $(strip $(KIND)),,$(error KIND is empty: use one or more of $(KINDS)))rc=0; $(foreach kind,$(KIND),$(foreach storm,$(kind) $(kind)_again,$(if $(CHAOS_$(storm)), \
	  echo "chaos: $(storm)"; $(if $(filter native,$(kind)),TEST_BROKER_VERSION=4.3) scripts/chaos.sh $(CHAOS_$(storm)) $(ARGS) || { rc=$$?; [ $$rc -lt 128 ] || exit $$rc; };))) exit $$rc

.PHONY: soak
soak: build ## what is too long for each change: all seeds and deliberate bugs of simulation and storm, a million messages; three hours (PARTS='sim bugs storm', PARTS=nightly: the tests that make test leaves out)
	@scripts/soak.sh $(ARGS)

.PHONY: rolling
rolling: build ## SIDECAR_RETRY_DELAY is 5 s, 1 s, 10 s, 1 s and 5 s again, in rolling updates of two replicas at 200 messages a second; 6 minutes
	@ROLLING_DELAYS=5s,1s,10s ROLLING_RATE=200 ROLLING_STAY=10s TEST_PARALLEL=1 RACE=none FORMAT=standard-verbose PKG=./test \
	  ARGS='-run ^TestRollingDelay$$/^fanout$$ -v' scripts/test.sh

.PHONY: bench
bench: build ## the figures of docs/performance.md on a private broker and a private PostgreSQL, beside programs written by hand (ARGS='-quick' for a first look, ARGS=-h for all)
	@scripts/bench.sh $(ARGS)

# Each half at the same commit; retries need the queue that delays them.
.PHONY: bench-docs
bench-docs: build ## measures every figure of docs/performance.md anew and rewrites the page; half an hour on a machine that does nothing else
	@scripts/bench.sh -docs
	@TEST_BROKER_VERSION=4.3 scripts/bench.sh -docs -only retries

.PHONY: bench-deadletter
bench-deadletter: build ## how long the dlq commands take and what CPU and memory they need (ARGS='-n 20000,1000000 -queue-type quorum', -against old=BINARY compares)
	@scripts/bench-deadletter.sh $(ARGS)

.PHONY: bench-micro
bench-micro: ## Go benchmarks of the internal packages; needs no broker
	go test -run '^$$' -bench . -benchmem ./internal/...

.PHONY: bench-compare
bench-compare: ## the same, against the committed baseline (PKG=./internal/dispatch narrows it)
	@scripts/bench-compare.sh

.PHONY: clean
clean: ## remove what the targets above built or downloaded into this directory
	rm -rf bin dist .cache test/console/screenshots

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
