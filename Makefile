# `make` alone is its help. CI runs `make ready`, nothing else.

SECONDS ?= 600
SEED ?=
LAYOUT ?=
DEPLOYMENT ?=
BUG ?=
CATCHERS ?=
ROUNDS ?=
ONLY ?=
ORDERS ?=

# What tests need besides the default features: places to fail at, and the configuration.
FEATURES := tenure-sale/failpoints,tenure/serde

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## Oversell with a naive shop, then sell exactly the stock under the lock; needs no server
	cargo run --release -- demo

.PHONY: demo-two
demo-two: redis-server postgresql ## Two instances of `tenure serve` on two ports sell 5000 units of one Redis under load, exactly
	cargo build --release -p tenure-cli
	@cargo run --quiet --release -p tenure-cli --example two_instances

# Most tests wait for servers and not for a core: six at once take a third of the time of two.
.PHONY: test
test: export RUST_TEST_THREADS ?= 6
test: export TENURE_PAGE = skip
test: redis-server postgresql pgbouncer ## Install redis-server and PostgreSQL if they are missing, then run all tests but those of the page
	cargo test --workspace --all-targets --features $(FEATURES) --no-fail-fast
	cargo test --workspace --doc --features $(FEATURES)

.PHONY: test-page
test-page: export TENURE_PAGE = require
test-page: redis-server chromium ## Install chromium and its driver if they are missing, then test the page in it
	cargo test --workspace --features $(FEATURES) --test page -- --nocapture

.PHONY: screenshots
screenshots: export TENURE_PAGE = require
screenshots: redis-server chromium ## Take the pictures of the page in docs/images anew
	TENURE_SCREENSHOTS=1 cargo test -p tenure-cli --test page pictures

.PHONY: check
check: ## Format and lints, warnings denied; whether the lock file of bench/ is current
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy -p tenure --no-default-features -- -D warnings
	cargo tree --quiet --locked --manifest-path bench/Cargo.toml > /dev/null

.PHONY: doc
doc: ## Documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

.PHONY: faults
faults: redis-server ## Break servers, connections and clients at random: make faults SECONDS=3600 SEED=42 LAYOUT=redisson DEPLOYMENT=single|redlock|sentinel|cluster
	SECONDS=$(SECONDS) $(if $(SEED),SEED=$(SEED)) $(if $(LAYOUT),LAYOUT=$(LAYOUT)) $(if $(DEPLOYMENT),DEPLOYMENT=$(DEPLOYMENT)) cargo test --release -p tenure --test faults

.PHONY: faults-sale
faults-sale: redis-server postgresql ## Sell while servers, consumers and instances break: make faults-sale SECONDS=600 SEED=42 DEPLOYMENT=single|sentinel|cluster|damaged
	SECONDS=$(SECONDS) $(if $(SEED),SEED=$(SEED)) $(if $(DEPLOYMENT),DEPLOYMENT=$(DEPLOYMENT)) cargo test --release -p tenure-sale --features failpoints --test faults

.PHONY: rebuild
rebuild: redis-server postgresql ## Rebuild the gates of items with many orders, and say how long that takes: make rebuild ORDERS=1000000
	ORDERS=$(or $(ORDERS),1000000) cargo test --release -p tenure-sale --features failpoints --test rebuild

.PHONY: faults-run
faults-run: redis-server ## Stop and kill servers, wrappers and wardens of `tenure run`: make faults-run ROUNDS=200
	ROUNDS=$(or $(ROUNDS),200) RUST_TEST_THREADS=2 cargo test --release -p tenure-cli --test it run::faults

.PHONY: long
long: redis-server ## The hazard tests and the ballot model with their long counts (ten times those of CI)
	TENURE_LONG=1 cargo test --release -p tenure --test it hazards
	TENURE_LONG=1 cargo test --release -p tenure --test ballot

.PHONY: seeded
seeded: redis-server ## Plant one bug after the other and see each caught, CATCHERS=tests without the fault runs: make seeded BUG=naive-retry
	BUG=$(BUG) CATCHERS=$(CATCHERS) cargo test -p tenure --features seeded-bugs --test seeded

SALE_BUGS := ack-before-commit rebuild-without-drain rebuild-without-buyers rebuild-without-answers sold-out-at-home

# Each with the test that must fail.
SALE_TEST_BUGS := \
	lost-queue-unseen:engine::keys::the_orders_deleted_alone_heal::redis_sqlite \
	one-item-stops-all:engine::care::an_item_that_cannot_be_told_does_not_keep_others_from_being_told \
	lost-orders-unsaid:engine::lost::lost_orders_are_announced_though_their_process_is_gone::redis_sqlite \
	trimmed-queue-unseen:engine::lost::trimmed_orders_are_lost_and_named_by_themselves::redis_sqlite \
	reading-writes:engine::invented::to_read_a_lost_order_writes_nothing::redis_sqlite \
	terms-of-today:engine::terms::accepted_orders_keep_their_terms::redis_sqlite \
	put-back-unseen:engine::put_back::a_ledger_put_back_by_an_epoch_is_rebuilt_by_decision::redis_sqlite \
	dead-consumers-unseen:engine::consumers::what_a_killed_consumer_had_is_confirmed_within_seconds::redis_sqlite \
	contradiction-unseen:engine::answers::an_answer_deleted_alone_is_there_again::redis_sqlite \
	wrong-gate-unseen:engine::pairing::a_second_gate_of_a_ledger_is_refused::redis_sqlite

.PHONY: seeded-sale
seeded-sale: redis-server postgresql ## Plant one bug after the other in the sale and see a test or its fault run catch each
	@cargo test -p tenure-sale --features failpoints --test it --no-run
	@for pair in $(SALE_TEST_BUGS); do \
		bug=$${pair%%:*}; \
		if TENURE_SALE_BUG=$$bug cargo test -q -p tenure-sale --features failpoints --test it "$${pair#*:}" >/dev/null 2>&1; \
		then echo "bug $$bug: not caught"; exit 1; else echo "bug $$bug: caught"; fi; \
	done
	@for bug in $(SALE_BUGS); do \
		TENURE_SALE_BUG=$$bug DEPLOYMENT=single SEED=11 SECONDS=15 \
		cargo test -p tenure-sale --features failpoints --test faults || exit 1; \
	done

comma := ,
# The command is built only where it is measured.
BENCH_MEASURES = $(if $(ONLY),$(subst $(comma), ,$(ONLY)),command)

.PHONY: bench
bench: redis-server postgresql ## Measure beside the floor and the peers, several minutes: make bench ROUNDS=3 ONLY=pairs,wake
	@$(if $(filter command% http%,$(BENCH_MEASURES)),cargo build --quiet --locked --release -p tenure-cli)
	@TENURE_BIN=$${TENURE_BIN:-$(abspath $(or $(CARGO_TARGET_DIR),target))/release/tenure} \
		cargo run --quiet --locked --release --manifest-path bench/Cargo.toml -- $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY))

.PHONY: dist
dist: ## Build the command for distribution: small and fast, slow to build
	cargo build --locked --profile dist -p tenure-cli

.PHONY: deny
deny: ## Licences and sources of dependencies (needs cargo-deny)
	cargo deny check

.PHONY: ready
ready: check doc test test-page ## Exactly what CI runs

# Tests need a real server. Debian's package is enough; root or sudo installs it. The example in Python
# is tested if redis-py can be had too.
.PHONY: redis-server
redis-server:
	@command -v redis-server >/dev/null || $(MAKE) --no-print-directory install-redis

.PHONY: install-redis
install-redis:
	@if ! command -v apt-get >/dev/null; then \
		echo "redis-server 7.0 or newer is missing: install it with your package manager, for example: brew install redis"; exit 1; \
	elif [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server \
		&& { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-redis || true; }; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then \
		sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server \
		&& { sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-redis || true; }; \
	else \
		echo "redis-server is missing. Type: sudo apt-get install -y redis-server"; exit 1; \
	fi

# The ledger's tests start servers of their own with PostgreSQL's programs, which on Debian are in nobody's
# path. The cluster that the package makes is left alone, running or not.
.PHONY: postgresql
postgresql:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || $(MAKE) --no-print-directory install-postgresql

.PHONY: install-postgresql
install-postgresql:
	@if ! command -v apt-get >/dev/null; then \
		echo "PostgreSQL 12 or newer is missing: install it with your package manager, for example: brew install postgresql"; exit 1; \
	elif [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then \
		sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; \
	else \
		echo "PostgreSQL is missing. Type: sudo apt-get install -y postgresql"; exit 1; \
	fi

# One test of the ledger; it is skipped where this cannot be had.
.PHONY: pgbouncer
pgbouncer:
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || \
	if ! command -v apt-get >/dev/null; then \
		echo "pgbouncer is missing: one test is skipped"; \
	elif [ "$$(id -u)" = 0 ]; then \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer \
		|| echo "pgbouncer cannot be installed: one test is skipped"; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then \
		sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer \
		|| echo "pgbouncer cannot be installed: one test is skipped"; \
	else \
		echo "pgbouncer is missing, so one test is skipped. Type: sudo apt-get install -y pgbouncer"; \
	fi

# The page's tests drive a real browser: Debian's, with the driver that belongs to it.
.PHONY: chromium
chromium:
	@{ command -v chromium && command -v chromedriver; } >/dev/null || $(MAKE) --no-print-directory install-chromium

.PHONY: install-chromium
install-chromium:
	@if ! command -v apt-get >/dev/null; then \
		echo "chromium and chromedriver are missing: install them with your package manager"; exit 1; \
	elif [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then \
		sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; \
	else \
		echo "chromium is missing. Type: sudo apt-get install -y chromium chromium-driver"; exit 1; \
	fi
