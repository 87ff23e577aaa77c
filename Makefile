# kelvin: make run, make test, make bench, make docs. `make help` says what each does.
#
# `make test` builds the development profile alone. `make test-long` needs the program that users get, in the release profile, for the
# guests, the kernel module and the whole run.

CARGO   ?= cargo
PYTHON  ?= python3
TARGET  := $(or $(CARGO_TARGET_DIR),target)
KELVIN  := $(TARGET)/release/kelvin
DEBUG   := $(TARGET)/debug/kelvin
ARM     := aarch64-unknown-linux-gnu
# One page of the book for each area, made from what its probes say of themselves.
AREAS   := cpu os mem file net transfer load causes
# What the tests write: not in the tree. The second is where they note how long they took and what they could not test here.
WORK    := $(TARGET)/test-work
RECORDS := $(abspath $(TARGET))/test-records

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run build test test-long smoke causes features setup fmt clippy rustdoc unit unit-build arm kmod docs docs-check charts-check links bench-check bench-docs book guest whole selfcheck nfs bench clean need-cc need-cargo

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

# ---- for users

run: build ## measure this machine: the table here, report.html in this directory, the run in the store
	$(KELVIN) run

build: need-cargo need-cc
	$(CARGO) build --release --locked --package kelvin

need-cargo:
	@command -v $(CARGO) >/dev/null || { echo 'kelvin needs Rust, and cargo is not here: see https://rustup.rs' >&2; exit 1; }

need-cc:
	@command -v cc >/dev/null || { echo 'kelvin needs a C compiler for the SQLite inside it, and cc is not here: apt-get install gcc libc6-dev (or what your distribution calls it)' >&2; exit 1; }

# ---- for developers

test: ## everything that must hold before a change lands
	@KELVIN_TEST_RECORDS=$(RECORDS) scripts/test

test-long: ## planted causes, guests, the kernel module, aarch64, the page in a browser: those of which an input changed; ALL=1 for all
	@KELVIN_TEST_RECORDS=$(RECORDS) scripts/test long $(if $(ALL),--all)

setup: ## install what the tests need, where that is possible; says what is missing and what is skipped for it
	@scripts/setup

fmt: ## the layout of the code
	$(CARGO) fmt --all --check

clippy: ## lints, none of them only a warning
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

rustdoc: ## documentation of the code, none of it missing or broken
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps

unit: unit-build ## the tests of every crate, the ones of the whole program among them
	@CARGO='$(CARGO)' scripts/test-unit

unit-build: need-cargo need-cc
	$(CARGO) test --locked --workspace --no-run

smoke: $(DEBUG) ## a quick run of every area, stored, exported and reported, by the program of the tests
	scripts/test-whole --quick $(DEBUG) $(TARGET)/debug $(WORK)

causes: unit-build ## that `kelvin why` names every planted cause
	$(CARGO) test --locked --workspace --test why -- --ignored

features: ## that kelvin compiles without PostgreSQL, Parquet and TLS, without a warning
	$(CARGO) clippy --locked --package kelvin --no-default-features -- -D warnings

arm: ## that everything compiles for aarch64, where the target and its C compiler can be had
	@scripts/check-arm $(ARM)

kmod: build ## that the kernel module does what it should in a guest, where QEMU and Debian's kernels can be had
	@$(MAKE) --no-print-directory -C kmod test WORK=$(abspath $(TARGET))/kmod KELVIN=$(abspath $(KELVIN))

docs: $(DEBUG) ## the book's pages that are made from the texts of the probes
	@mkdir -p docs/src/probes
	for area in $(AREAS); do $(DEBUG) book-page $$area > docs/src/probes/$$area.md || exit 1; done

docs-check: $(DEBUG) ## that those pages say what the probes say
	@for area in $(AREAS); do \
		$(DEBUG) book-page $$area | diff -u docs/src/probes/$$area.md - \
			|| { echo "docs/src/probes/$$area.md is not what the probes say: run make docs" >&2; exit 1; }; \
	done; echo 'docs-check: the pages of $(AREAS) are what the probes say'

charts-check: ## that what the report draws with was made from the script beside it, by the sums kept then
	@cd crates/report/assets/charts && sha256sum --check --quiet SHA256SUMS \
		|| { echo 'crates/report/assets/echarts.deflate.txt is not of this script: npm ci && npm run build in charts/' >&2; exit 1; }
	@echo 'charts-check: echarts.deflate.txt is of the script beside it'

links: ## that every file which the documents link to is there, and every name in the guide
	$(PYTHON) scripts/check-guide
	$(PYTHON) scripts/check-links README.md CONTRIBUTING.md CHANGELOG.md kmod/README.md docs/src

bench-check: ## that every benchmark starts, since what they share has changed under one before, that their arithmetic is right, and that the book has the kept results
	@for script in $$(grep -l 'common.main(' bench/*.py); do $(PYTHON) "$$script" --help >/dev/null || exit 1; done
	@for script in $$(grep -l '^def check_arithmetic' bench/*.py); do \
		$(PYTHON) -B -c "import sys; sys.path.insert(0, 'bench'); import $$(basename $$script .py) as it; it.check_arithmetic()" || exit 1; \
	done
	@$(PYTHON) -B bench/report.py --check
	@echo 'bench-check: every benchmark starts, those that check their arithmetic find it right, and the page has the kept results'

bench-docs: ## the results in docs/src/benchmarks.md, from what is kept in bench/results
	$(PYTHON) -B bench/report.py

book: docs ## the book as HTML in docs/book; needs mdbook
	@command -v mdbook >/dev/null || { echo 'the book is made by mdbook, which is not here: cargo install mdbook' >&2; exit 1; }
	mdbook build docs

guest: build $(DEBUG) ## every probe on an old processor, memory of other nodes, and remote files, in a guest
	$(PYTHON) tests/guest/run.py $(KELVIN) "$$(scripts/test-program run_once)" $(TARGET)/guest

whole: build $(DEBUG) ## a real run by the program that users get, its known truths, and its page in a real browser
	scripts/test-whole $(KELVIN) $(TARGET)/debug $(WORK)

# As the tests are built: of fewer packages cargo would choose other features, and build half of them again.
$(DEBUG): unit-build
.PHONY: $(DEBUG)

nfs: build ## remote files over every mount of an NFS server in a guest, at every size: half an hour or more, of function only
	$(PYTHON) tests/guest/nfs.py $(KELVIN) $(TARGET)/guest $(TARGET)/remote-files

selfcheck: build ## whether what is known by construction comes out right, on a machine left alone
	$(KELVIN) selfcheck

# In this order, each with its arguments, whatever the verdicts of those before are.
BENCHMARKS := agreement 'repeatability --rivals' 'repeatability --fresh --area all' latency memory file net streams transfer transfer_limits \
	serve serve_models load load_limits load_growth transfer_faults canaries cost faults other_host 'truths --at-once 4' hostile history compare causes

bench: build ## how right, repeatable, cheap and sturdy the numbers are: several hours, on a machine left alone; KEEP=--keep keeps them
	@missed=; for one in $(BENCHMARKS); do \
		set -- $$one; name=$$1; shift; \
		$(PYTHON) bench/$$name.py --kelvin $(KELVIN) $(KEEP) "$$@" || missed="$$missed $$name"; \
	done; [ -z "$$missed" ] || { echo "bench: not every bound was kept, or it could not be done, by:$$missed" >&2; exit 1; }

clean: ## remove what was built
	$(CARGO) clean
	rm -rf docs/book
