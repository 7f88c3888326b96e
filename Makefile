# The commands of this repository. Each prints what it does; `make help` lists them.

# nvcc is often installed without being on the path.
export PATH := $(PATH):/usr/local/cuda/bin

.DEFAULT_GOAL := help
.PHONY: help demo build test lint format tidy bench docs wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## install what is missing, build the command sluice, show it
	@scripts/setup.sh build
	cmake --preset release
	cmake --build --preset release --target sluice
	build/release/sluice demo

build: ## build everything into build/release
	@scripts/setup.sh build
	cmake --preset release
	cmake --build --preset release

test: ## install what is missing, then run every test that this machine can run
	@scripts/setup.sh build test
	@scripts/test.sh

lint: ## check the formatting
	@scripts/lint.sh

format: ## apply the formatting
	@scripts/lint.sh --fix

tidy: ## clang-tidy over every source file (slow)
	cmake --preset dev
	git ls-files '*.cc' ':!tests/install' ':!tests/fuzz' ':!tests/compile_fail' | \
		xargs -P "$$(nproc)" -n 1 clang-tidy-19 --quiet -p build/dev

bench: ## time selection on the CPU, next to the floor and to its peers (some minutes)
	@scripts/setup.sh build
	cmake --preset release
	cmake --build --preset release --target sluice
	@mkdir -p bench/results
	build/release/sluice bench select --json bench/results/select-cpu.json

docs wheel:
	@echo "make $@: comes with the part of Sluice that it is for, which is not in this version" >&2
	@exit 2

clean: ## remove build/ and dist/
	rm -rf build dist
