# `make examples` and `make test` do everything; see README.md.
export CGO_ENABLED = 0

GO         ?= go
PREFIX     ?= $(HOME)/.local

.PHONY: build examples deps test race lint cross escape soak bench fuzz install clean

build: bin/ev bin/eval-world bin/eval-play

.PHONY: bin/ev bin/eval-world bin/eval-play
# Without what the command line library has for man pages a start takes a fifth less.
bin/ev:
	$(GO) build -trimpath -tags urfave_cli_no_docs -o bin/eval ./cmd/eval
	ln -sf eval bin/ev

# eval finds them beside itself.
bin/eval-world bin/eval-play:
	$(GO) build -trimpath -o $@ ./cmd/$(@F)

examples: build
	bin/ev lock //examples/...
	bin/ev build --draws=allow //examples/...

# What tests need beyond the standard tool chain, so that they run without a
# network: all modules, the linters of the separate module tools/, and the agent
# command lines that sandbox/clitest runs (500 MB; without npm they are skipped).
deps:
	$(GO) mod download
	cd tools && $(GO) build -o ../bin/tools/ tool
	tools/npm/install.sh

test: deps build lint cross
	$(GO) test -timeout 15m ./...

# -race needs cgo and a C compiler: where there is none, the plain tests stand.
race:
	CGO_ENABLED=1 $(GO) test -race ./...

lint: deps
	$(GO) vet ./...
	cd tools && $(GO) vet ./...
	@out=$$(bin/tools/gofumpt -l cas cmd rules sandbox starlark workspace tools *.go); \
		if [ -n "$$out" ]; then echo "gofumpt would change:"; echo "$$out"; exit 1; fi
	bin/tools/staticcheck ./...

cross:
	GOOS=linux GOARCH=amd64 $(GO) build -o /dev/null ./cmd/eval
	GOOS=linux GOARCH=amd64 $(GO) build -o /dev/null ./cmd/eval-world
	GOOS=linux GOARCH=amd64 $(GO) build -o /dev/null ./cmd/eval-play
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null ./cmd/eval
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null ./cmd/eval-world
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null ./cmd/eval-play
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/eval
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/eval-world
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/eval-play

# What is tried against the seal, as root and as an ordinary user.
escape:
	$(GO) test -timeout 10m ./sandbox/escape

# Builds and appends that are killed at random, a thousand times and more.
soak:
	$(GO) test -timeout 10m -run TestKill ./workspace/draws -soak
	$(GO) test -timeout 60m -run TestSoak ./cmd/eval -soak -v

bench: build
	$(GO) test -run '^$$' -bench Seal -benchtime 1x ./sandbox
	cd tools && $(GO) run ./bench ../bin/eval

FUZZTIME ?= 20s
fuzz:
	@for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
			echo "$$p $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$p || exit 1; \
		done; \
	done

install: build
	mkdir -p $(PREFIX)/bin
	cp bin/eval bin/eval-world bin/eval-play $(PREFIX)/bin/
	ln -sf eval $(PREFIX)/bin/ev

# Without their lines in draws.lock the examples' captures are found in the store
# again, or if they are gone drawn again.
clean:
	rm -rf bin eval-out
	find examples -name draws.lock -delete
