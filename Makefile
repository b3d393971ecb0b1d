# Everything that a change needs, each target with all the set-up that it needs.
# `make` or `make help` lists the targets.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

# What is tested: packages, and flags for `go test` (CI passes -race -shuffle=on).
PKG ?= ./...
TESTFLAGS ?=
# How long `make fuzz` spends on each fuzz target.
FUZZTIME ?= 10s

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binaries for this machine into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: image
image: ## Build the image of container jobs, dayfly-runner:VERSION
	@VERSION='$(VERSION)' scripts/image

.PHONY: test
test: ## Run all tests; names what was skipped and why
	@go build -o .cache/testsum ./scripts/testsum && .cache/testsum -timeout 5m $(TESTFLAGS) $(PKG)

.PHONY: lint
lint: ## Check format, tidiness, vet and golangci-lint
	@scripts/lint

.PHONY: fmt
fmt: ## Format the code
	find . \( -name .git -o -name .cache -o -name bin \) -prune -o -name '*.go' -print0 | xargs -0 gofmt -w

.PHONY: cover
cover: ## Run all tests and show coverage by package; writes .cache/cover.html
	@scripts/cover

.PHONY: bench
bench: ## Measure the product beside its aims, then benchmark the packages (QUICK=1: sooner)
	@scripts/bench $(PKG)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz $(PKG)

.PHONY: demo
demo: ## Run real workflows end to end on this machine (DEPLOY_TARGET=process or docker)
	@scripts/demo

.PHONY: clean
clean: ## Remove what make built
	rm -rf bin .cache dist
