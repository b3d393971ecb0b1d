# Everything that a change needs; each target does its own set-up.
# `make` or `make help` lists the targets.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

# The tests' packages, and flags for `go test` (CI passes -race -shuffle=on).
PKG ?= ./...
TESTFLAGS ?=
# How many schedules `make sim` plays.
SEEDS ?= 1000
# How long `make fuzz` spends on each fuzz target.
FUZZTIME ?= 10s

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X github.com/dayfly-dev/dayfly/cmd/dayfly/internal/quick.Version=$(VERSION)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binaries for this machine into bin/
	@LDFLAGS='$(LDFLAGS)' scripts/build bin ./cmd/...

.PHONY: image
image: ## Make the image of container jobs (IMAGE=, BASE=, EXTRA_CA=, OUTPUT=, PUSH=1 ...: docs/configuration.md)
	@VERSION='$(VERSION)' PROVIDERS='$(PROVIDERS)' scripts/image

# The processor of the functions: arm64 is shipped.
FUNCTIONS_ARCH ?= arm64

.PHONY: functions
functions: ## Build the Lambda functions and their zips into dist/functions (FUNCTIONS_ARCH=arm64)
	@go run ./scripts/functions -arch '$(FUNCTIONS_ARCH)' -version '$(VERSION)'

# The target of `sam build` for each function, by its name in the template.
SAM_Poller := poller
SAM_Dispatcher := dispatcher
SAM_DeadLetters := dispatcher
SAM_Status := status
SAM_Reaper := reaper
SAM_Deliverer := deliverer
SAM_ControlPlane := controlplane
SAM_LongPolls := controlplane
build-%:
	@go run ./scripts/functions -only '$(or $(SAM_$*),$*)' -out '$(ARTIFACTS_DIR)' -version '$(VERSION)'

.PHONY: test
test: ## Run all tests; list skipped ones with the reason
	@PACKAGES='$(PKG)' scripts/test $(TESTFLAGS)

.PHONY: mutants
mutants: ## Make each deliberate mistake of test/mutants, which its tests must notice (ONLY="NAME ...")
	@scripts/mutants $(ONLY)

.PHONY: soak
soak: ## Hunt for hours, before a release: seeds, fuzz targets, the second base of the image, each mistake (SEEDS=, FUZZTIME=)
	@scripts/soak

.PHONY: release-check
release-check: ## Look whether this commit can be released (RELEASE=0.2.0)
	@scripts/release-check '$(RELEASE)'

.PHONY: sim
sim: ## Simulate SEEDS (1000) schedules of work and faults in virtual time
	@n=$$(nproc); seq 0 $$((n - 1)) | xargs -P "$$n" -I % \
		go test ./test/sim -run 'TestSim$$' -count=1 -timeout 0 -seeds $(SEEDS) -parts "$$n" -part % -v

.PHONY: attack
attack: ## Try to break out of containers and processes of root, and print the outcome (WHY=1: each single attempt)
	@go test -C test/isolation -count=1 -timeout 30m -run '^TestAttack' -table $(if $(WHY),-each)

.PHONY: lint
lint: ## Check format, tidiness, vet and golangci-lint
	@scripts/lint

.PHONY: lint-templates
lint-templates: ## Review the templates: cfn-lint, our own rules, their policies
	@scripts/lint-templates

.PHONY: transform
transform: ## Transform the templates for the tests (after each change of a template)
	@scripts/transform

.PHONY: generate
generate: ## Write the Go code of the pages' templates (after each change of a .templ file)
	go tool -modfile=tools/go.mod templ generate -path internal/console -log-level warn

.PHONY: licenses
licenses: ## Write the licenses of all linked modules into THIRD_PARTY_LICENSES.txt (after each change of a dependency)
	@go run ./scripts/licenses

.PHONY: fmt
fmt: ## Format the code
	find . \( -name .git -o -name .cache -o -name bin \) -prune -o -name '*.go' -print0 | xargs -0 gofmt -w

.PHONY: cover
cover: ## Run all tests and show coverage by package; writes pages into .cache/cover
	@scripts/cover

.PHONY: size
size: ## Count the lines of product, tests and harness
	@scripts/size

.PHONY: bench
bench: ## Measure the product against its aims, then benchmark the packages (QUICK=1: sooner; ONLY=Claims, Logs ...)
	@scripts/bench $(PKG)

.PHONY: bench-functions
bench-functions: ## Measure zip, memory and init of each function, and the time and cost of each memory size (WHY=1: package inits)
	@WHY='$(WHY)' go test ./test/bench/functions -run '^$$' -bench . -benchtime 1x -count 1 -timeout 30m -v

.PHONY: bench-pickup
bench-pickup: ## Measure from submit to RunTask, and the drain of 10,000, in half an hour (QUICK=1: 8 min; ONLY=line,wake,window,once,drain; WHY=1)
	@go run ./test/bench/pickup -root '$(CURDIR)' $(if $(QUICK),-quick) $(if $(ONLY),-only '$(ONLY)') $(if $(WHY),-why)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz $(PKG)

.PHONY: deploy
deploy: ## Deploy to the AWS account of the CLI's credentials: shows the plan, asks once (POOL=, PARAMETERS=, PLAN=changeset or 1)
	@VERSION='$(VERSION)' scripts/deploy

.PHONY: destroy
destroy: ## Drain and delete a deployment, and list the resources that stay (POOL=, CONTROL_PLANE=1, KEEP_LOGS=1, PLAN=1)
	@scripts/destroy

.PHONY: demo
demo: ## Run real workflows end to end on this machine (DEPLOY_TARGET=process or docker)
	@scripts/demo

.PHONY: e2e
e2e: ## Run real workflows through the deployed functions, over an AWS of fakes (TASKS=process ONLY= E2E_EXTERNAL=)
	@scripts/e2e

.PHONY: e2e-localstack
e2e-localstack: ## The same as e2e, with queues, secrets, records and states in LocalStack (LOCALSTACK_IMAGE= LOCALSTACK_URL= E2E_EXTERNAL=)
	@go test -C test/localstack -count=1 -timeout 60m -v .

.PHONY: browser
browser: ## Play stories of people with the console's pages in Chromium (STORY=regexp); pictures of failures: dist/browser
	@go test -C test/browser -count=1 -timeout 20m -v $(if $(STORY),-run '$(STORY)') -skip '^TestScreenshots$$' .

.PHONY: screenshots
screenshots: ## Write pictures of the console's pages with demo data, at three widths, light and dark (OUT=dist/screenshots)
	@go test -C test/browser -count=1 -timeout 20m -run '^TestScreenshots$$' . -screenshots '$(abspath $(or $(OUT),dist/screenshots))'

.PHONY: invoke
invoke: ## Run FUNCTION (poller, dead-letters ...) once over an AWS of fakes, with a sample event (EVENT=file)
	@FUNCTION='$(FUNCTION)' EVENT='$(EVENT)' go run ./test/cloud/invoke

.PHONY: clean
clean: ## Remove what make built
	rm -rf bin .cache dist
