# kelvin: make run, make test, make bench, make docs. `make help` describes each target.
#
# `make test` builds only the development profile. `make test-long` also needs the release profile, for the guests, the kernel module and
# the whole run.

CARGO   ?= cargo
PYTHON  ?= python3
TARGET  := $(or $(CARGO_TARGET_DIR),target)
KELVIN  := $(TARGET)/release/kelvin
DEBUG   := $(TARGET)/debug/kelvin
ARM     := aarch64-unknown-linux-gnu
# One page of the book for each area, made from the texts of its probes.
AREAS   := cpu os mem file net transfer load causes
# Directories of the tests, outside of the source tree. The second has their times and skips.
WORK    := $(TARGET)/test-work
RECORDS := $(abspath $(TARGET))/test-records

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: cluster cluster-test dashboards first-hours help run build test test-long smoke causes features launchers setup fmt clippy rustdoc unit unit-build arm static static-test reproducible msrv deny kmod docs docs-check charts-check links bench-check bench-docs book dist dist-test pages guest whole selfcheck nfs bench clean need-cc need-cargo

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

# ---- for users

run: build ## measure this machine: prints the table, writes report.html in this directory, stores the run
	$(KELVIN) run -o report.html

build: need-cargo need-cc
	$(CARGO) build --release --locked --package kelvin

need-cargo:
	@command -v $(CARGO) >/dev/null || { echo 'kelvin needs Rust, and cargo is not installed: see https://rustup.rs' >&2; exit 1; }

need-cc:
	@command -v cc >/dev/null || { echo 'kelvin needs a C compiler for its SQLite, and cc is not installed: apt-get install gcc libc6-dev (or the packages of your distribution)' >&2; exit 1; }

# ---- for developers

test: ## all tests that a change must pass
	@KELVIN_TEST_RECORDS=$(RECORDS) scripts/test

test-long: ## planted causes, guests, the kernel module, aarch64, the page in a browser: tests with changed inputs; ALL=1 for all
	@KELVIN_TEST_RECORDS=$(RECORDS) scripts/test long $(if $(ALL),--all)

setup: ## install the requirements of the tests, if possible; report missing ones and the tests that are skipped
	@scripts/setup $(SETUP)

fmt: ## check the layout of the code
	$(CARGO) fmt --all --check

clippy: ## lints; every warning is an error
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

rustdoc: ## documentation of the code; missing or broken parts are errors
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps

unit: unit-build ## the tests of every crate, including those of the whole program
	@CARGO='$(CARGO)' scripts/test-unit

unit-build: need-cargo need-cc
	$(CARGO) test --locked --workspace --no-run

smoke: $(DEBUG) ## a quick run of every area, stored, exported and reported, by the debug build
	scripts/test-whole --quick $(DEBUG) $(TARGET)/debug $(WORK)

causes: unit-build ## check that `kelvin why` names every planted cause
	$(CARGO) test --locked --workspace --test why -- --ignored

features: ## check that kelvin compiles without PostgreSQL, Parquet, TLS and HTTP/2, and without warnings
	$(CARGO) clippy --locked --package kelvin --no-default-features -- -D warnings

launchers: $(DEBUG) ## run the recipes of contrib/ for many hosts, by each launcher that is installed, on hosts that are namespaces
	PATH="$(abspath $(TARGET))/reframe/bin:$$PATH" $(PYTHON) -B tests/launchers/run.py $(DEBUG) $(TARGET)/launchers

first-hours: $(DEBUG) ## play the first hour of a stranger in twelve environments that go wrong: no home, full disks, signals, limits
	$(PYTHON) -B tests/first-hours/run.py $(DEBUG)

dashboards: $(DEBUG) ## test the rules and dashboards of contrib/ on a real Prometheus and PostgreSQL, and by Grafana's published schema
	$(PYTHON) -B tests/dashboards/run.py $(DEBUG) $(TARGET)/dashboards

cluster: need-cargo ## build kelvin-cluster, which needs an MPI and libclang: target/cluster/release/kelvin-cluster
	@command -v mpicc >/dev/null || { echo 'kelvin-cluster needs an MPI, and mpicc is not installed: apt-get install libopenmpi-dev openmpi-bin libclang-dev' >&2; exit 1; }
	cd crates/cluster && CARGO_TARGET_DIR=$(abspath $(TARGET))/cluster $(CARGO) build --release --locked

cluster-test: ## test kelvin-cluster: its arithmetic, and between namespaces under Open MPI and MPICH, where they are installed
	@CARGO='$(CARGO)' scripts/test-cluster $(abspath $(TARGET))/cluster

arm: ## tests for aarch64 by qemu-user, and in a guest with hardware counters, if QEMU and a C compiler are available
	@scripts/check-arm $(ARM) $(TARGET)/guest-aarch64

static: need-cargo ## build the static binaries of a release, for x86-64 and aarch64: target/TARGET/dist/kelvin
	scripts/build-static x86_64-unknown-linux-musl
	scripts/build-static aarch64-unknown-linux-musl

static-test: need-cargo ## check those binaries: static, at most 15 MB, no path of this machine, and they measure, that for aarch64 under qemu-user
	@scripts/check-static

reproducible: need-cargo ## check that two builds of a release in two directories have the same bytes
	@scripts/check-reproducible

msrv: need-cargo ## check that kelvin compiles with the oldest Rust that it promises
	@scripts/check-msrv

deny: ## check licences, sources, duplicates and known vulnerabilities of the dependencies, by cargo-deny
	@scripts/check-deny

kmod: build ## test the kernel module in a guest, if QEMU and Debian's kernels are available
	@$(MAKE) --no-print-directory -C kmod test WORK=$(abspath $(TARGET))/kmod KELVIN=$(abspath $(KELVIN))

docs: $(DEBUG) ## write the pages of the book that are made from the texts of the probes and the help
	@mkdir -p docs/src/probes
	for area in $(AREAS); do $(DEBUG) book-page $$area > docs/src/probes/$$area.md || exit 1; done
	$(PYTHON) scripts/book-options $(DEBUG) > docs/src/probes/options.md

docs-check: $(DEBUG) ## check that those pages equal the texts of the probes and the help
	@for area in $(AREAS); do \
		$(DEBUG) book-page $$area | diff -u docs/src/probes/$$area.md - \
			|| { echo "docs/src/probes/$$area.md differs from the texts of the probes: run make docs" >&2; exit 1; }; \
	done; echo 'docs-check: the pages of $(AREAS) equal the texts of the probes'
	@$(PYTHON) scripts/book-options $(DEBUG) | diff -u docs/src/probes/options.md - \
		|| { echo 'docs/src/probes/options.md differs from the help of the commands: run make docs' >&2; exit 1; }
	@echo 'docs-check: the page of options equals the help of the commands'

charts-check: ## check by checksums that the drawing library of the report was built from the script in its directory
	@cd crates/report/assets/charts && sha256sum --check --quiet SHA256SUMS \
		|| { echo 'crates/report/assets/echarts.deflate was not built from this script: npm ci && npm run build in charts/' >&2; exit 1; }
	@echo 'charts-check: echarts.deflate was built from the script in charts/'

links: ## check that every linked file of the documents exists, every name in the guide, and the book's length
	$(PYTHON) scripts/check-guide
	$(PYTHON) scripts/check-links README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md kmod/README.md bench/results docs/src

bench-check: ## check that every benchmark starts, that their arithmetic is right, and that the page of results has what is kept
	@for script in $$(grep -l 'common.main(' bench/*.py); do $(PYTHON) "$$script" --help >/dev/null || exit 1; done
	@for script in $$(grep -l '^def check_arithmetic' bench/*.py); do \
		$(PYTHON) -B -c "import sys; sys.path.insert(0, 'bench'); import $$(basename $$script .py) as module; module.check_arithmetic()" || exit 1; \
	done
	@$(PYTHON) -B bench/report.py --check
	@echo 'bench-check: every benchmark starts, every arithmetic check passes, and the page has the kept results'

bench-docs: ## write the results in bench/results/README.md, from the files beside it
	$(PYTHON) -B bench/report.py

book: docs ## the book as HTML in docs/book; needs mdbook
	@command -v mdbook >/dev/null || { echo 'the book needs mdbook, which is not installed: cargo install mdbook' >&2; exit 1; }
	mdbook build docs

guest: build $(DEBUG) ## every probe on an old processor, memory of other nodes, and remote files, in a guest
	$(PYTHON) tests/guest/run.py $(KELVIN) "$$(scripts/test-program run_once)" $(TARGET)/guest

whole: build $(DEBUG) ## a real run by the release build, its known truths, and its page in a real browser
	scripts/test-whole $(KELVIN) $(TARGET)/debug $(WORK)

# Built together with the tests: for fewer packages cargo would choose other features, and build half of them again.
$(DEBUG): unit-build
.PHONY: $(DEBUG)

nfs: build ## remote files over every mount of an NFS server in a guest, at every size: half an hour or more, functional only
	$(PYTHON) tests/guest/nfs.py $(KELVIN) $(TARGET)/guest $(TARGET)/remote-files

selfcheck: build ## check figures that are known by construction, on an idle machine
	$(KELVIN) selfcheck

# In this order, each with its arguments. A failed benchmark does not stop the next ones.
BENCHMARKS := agreement 'repeatability --rivals' 'repeatability --fresh --area all' latency memory file net streams transfer transfer_limits \
	serve serve_models load load_limits load_growth transfer_faults canaries cost faults other_host 'truths --at-once 4' hostile history compare fleet causes

bench: build ## accuracy, repeatability, cost and robustness of the figures: several hours, on an idle machine; KEEP=--keep keeps them
	@failed=; for benchmark in $(BENCHMARKS); do \
		set -- $$benchmark; name=$$1; shift; \
		$(PYTHON) bench/$$name.py --kelvin $(KELVIN) $(KEEP) "$$@" || failed="$$failed $$name"; \
	done; [ -z "$$failed" ] || { echo "bench: a bound was not kept, or the benchmark could not be done:$$failed" >&2; exit 1; }

# The programs of a release, each static and of another architecture, and a secret key of minisign, if any.
BINARIES ?= $(TARGET)/x86_64-unknown-linux-musl/dist/kelvin $(TARGET)/aarch64-unknown-linux-musl/dist/kelvin
KEY      ?=
# All times in a release.
RELEASE_TIME = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct))
# Not target/dist: there cargo keeps what it builds for builds with the profile of that name.
DIST     := $(TARGET)/release-files
PAGES    := $(TARGET)/pages
NFPM     := PATH="$(abspath $(TARGET))/nfpm/bin:$$PATH"

$(TARGET)/%-unknown-linux-musl/dist/kelvin: need-cargo
	scripts/build-static $*-unknown-linux-musl

pages: need-cargo need-cc ## man pages and completions of every command, in target/pages
	@rm -rf $(PAGES) && mkdir -p $(PAGES)
	KELVIN_PAGES=$(abspath $(PAGES)) SOURCE_DATE_EPOCH=$(RELEASE_TIME) \
		$(CARGO) test --quiet --locked --workspace --bin kelvin -- --exact cli::pages::every_command_has_man_page_and_completions

dist: pages $(BINARIES) ## the files of a release, in target/release-files; KEY=FILE signs them, BINARIES='PROGRAM...' are others than those of make static
	$(NFPM) SOURCE_DATE_EPOCH=$(RELEASE_TIME) scripts/dist $(DIST) $(PAGES) '$(KEY)' $(BINARIES)

dist-test: dist ## test them: the same bytes when made again, and installed, used and removed in fresh roots
	$(NFPM) $(PYTHON) -B tests/packages/run.py $(DIST) $(TARGET)/packages $(PAGES) $(BINARIES)

clean: ## remove build products
	$(CARGO) clean
	rm -rf docs/book
