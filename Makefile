# The commands of this repository. Each prints what it does; `make help` lists them.

# nvcc is often installed without being on the path.
export PATH := $(PATH):/usr/local/cuda/bin

.DEFAULT_GOAL := help
.PHONY: help demo build clients test test-all test-list test-names test-gpu lint format tidy bench plots docs wheel wheels release image \
        clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## install what is missing, build the command sluice, let it tell a story
	@scripts/setup.sh build
	@[ -x build/release/sluice ] || echo "demo: compiling the command first: some eight minutes of one core"
	cmake --preset release
	cmake --build --preset release --target sluice
	build/release/sluice generate "Once upon a time" --echo --max-tokens 300

build: ## build everything into build/release
	@scripts/setup.sh build
	cmake --preset release
	cmake --build --preset release

test: ## install what is missing, then build the release and test every promise once
	@scripts/setup.sh build test python
	@scripts/test.sh test

test-all: ## the same, then the slow tests, sanitizers, threads and fuzz targets: all there is
	@scripts/setup.sh build test python
	@scripts/test.sh all

test-gpu: ## build for this machine's GPU and run what needs one; SANITIZE=1: under compute-sanitizer, too
	@scripts/test.sh gpu $(if $(SANITIZE),--sanitize)

clients: ## install client libraries into build/clients, run them against sluice serve, write their table
	@scripts/setup.sh build python
	cmake --preset release
	cmake --build --preset release --target sluice
	scripts/check_clients.py build/release/sluice --install --write

test-list: ## print the names of all tests, of builds that are there
	@scripts/test.sh list

test-names: ## write these names into tests/all_tests.txt
	@scripts/test.sh list | tests/names_test.py --write tests/all_tests.txt

lint: ## check the formatting and the words
	@scripts/lint.sh

format: ## apply the formatting
	@scripts/lint.sh --fix

tidy: ## clang-tidy over every source file (slow)
	cmake --preset dev
	git ls-files '*.cc' ':!tests/install' ':!tests/fuzz' ':!tests/compile_fail' | \
		while read -r file; do ! grep -q "/$$file\"" build/dev/compile_commands.json || echo "$$file"; done | \
		xargs -P "$$(nproc)" -n 1 clang-tidy-19 --quiet -p build/dev

# The peers from Python are timed with PYTHON: make bench PYTHON=.venv/bin/python
PYTHON ?= python3
RESULTS := bench/results

bench: ## time everything on the CPU, next to the floor and to its peers, and draw it (25 minutes)
	@scripts/setup.sh build
	cmake --preset release
	cmake --build --preset release --target sluice
	@mkdir -p $(RESULTS)
	build/release/sluice bench select --json $(RESULTS)/select-cpu.json
	build/release/sluice bench algorithms --json $(RESULTS)/select-algorithms.json
	build/release/sluice bench draw --json $(RESULTS)/draw-cpu.json
	build/release/sluice bench pipeline --json $(RESULTS)/pipeline-cpu.json
	build/release/sluice bench head --json $(RESULTS)/head-cpu.json
	build/release/sluice bench engine --json $(RESULTS)/engine-cpu.json
	build/release/sluice bench soak --json $(RESULTS)/soak-cpu.json
	build/release/sluice bench serve --json $(RESULTS)/serve-cpu.json
	build/release/sluice bench topk --backend cpu --dtype fp32,bf16 --json $(RESULTS)/topk-cpu.json
	$(PYTHON) -B bench/generate_rate.py build/release/sluice --json $(RESULTS)/generate-cpu.json
	$(PYTHON) -B bench/generate_heads.py build/release/sluice --json $(RESULTS)/generate-heads-cpu.json
	@if $(PYTHON) -c 'import numpy' 2>/dev/null; then \
	  $(PYTHON) -B bench/trace_study.py build/release/sluice --json $(RESULTS)/traces-cpu.json && \
	  $(PYTHON) -B bench/peers_python.py --output $(RESULTS)/select-peers-python.json; \
	else echo "bench: $(PYTHON) has no numpy, so traces and its peers are left out;" \
	  "pip install numpy torch transformers llama-cpp-python" >&2; fi
	@if $(PYTHON) -c 'import sluice, numpy' 2>/dev/null; then \
	  $(PYTHON) -B bench/python_overhead.py --output $(RESULTS)/python-overhead.json; \
	else echo "bench: $(PYTHON) has no sluice, so calls from it are left out; pip install ." >&2; fi
	@if $(PYTHON) -c 'import tokenizers' 2>/dev/null; then \
	  $(PYTHON) -B bench/text_peers.py build/release/sluice --json $(RESULTS)/text-cpu.json; \
	else echo "bench: $(PYTHON) has no tokenizers, so text is left out; pip install tokenizers" >&2; fi
	@if $(PYTHON) -c 'import aiohttp, tokenizers' 2>/dev/null; then \
	  $(PYTHON) -B bench/serve_peers.py build/release/sluice \
	    --tokenizer models/default/tokenizer.json --json $(RESULTS)/serve-peers.json; \
	else echo "bench: $(PYTHON) has no aiohttp, so the server's peers are left out;" \
	  "pip install aiohttp tokenizers" >&2; fi
	@$(MAKE) --no-print-directory plots

plots: ## draw docs/img/ from bench/results/
	scripts/plot_bench.py $(RESULTS)/select-cpu.json --output docs/img/select-cpu.svg \
	  --title "Selection on one core: time of each task, in reads of the logits row" \
	  --only cache=hot --only dtype=float32 --only distribution=mid --only backend=cpu-avx512,cpu-avx2 \
	  --only task=greedy,top-50,top-2048,top-p,k50-p0.9-draw,draw
	scripts/plot_bench.py $(RESULTS)/select-algorithms.json --output docs/img/algorithms-top-p.svg \
	  --title "Top-p by every algorithm: mean time of a row, in reads of it" --only task=top-p \
	  --ours "Sluice's algorithms, by name" --others "others"
	scripts/plot_bench.py $(RESULTS)/traces-cpu.json --output docs/img/traces-top-p.svg \
	  --title "Top-p by every algorithm, on rows that a model decoded: mean time, in reads" \
	  --only bench=algorithms --only task=top-p --ours "Sluice's algorithms, by name"
	scripts/plot_bench.py $(RESULTS)/end-to-end-h200.json --output docs/img/end-to-end.svg \
	  --title "How much longer a decode step takes with each sampler: 8B, k = 50, p = 0.9" \
	  --only model=8b-128256 --only task=k50-p0.9 --only batch=8,32 --label batch,peer \
	  --only peer=sluice,sluice-requests,flashinfer-joint,flashinfer-k-first-rows,vllm-triton,torch-sort \
	  --linear --value gap_percent --unit " %" --axis "percent of a step that samples nothing"
	scripts/plot_bench.py $(RESULTS)/vllm-steps-h200.json --output docs/img/vllm-steps.svg \
	  --title "Milliseconds of a decode step of vLLM, 8B, 256 requests, by what they ask for" --only batch=256 \
	  --label task,sampler --grouped --value engine_step_us/1000 --decimals 2 --linear \
	  --axis "milliseconds between the steps of the engine" --ours "with Sluice's plug-in" --others "vLLM's sampler"
	scripts/plot_bench.py $(RESULTS)/front-vllm-h200.json --output docs/img/front-vllm.svg \
	  --title "Tokens a second of one vLLM engine, by its front end" \
	  --label streams,front --grouped --median --value tokens_s --decimals 0 --linear \
	  --axis "tokens a second" --ours "sluice serve" --others "vLLM's own"
	scripts/terminal_svg.py tests/cli/golden.txt serve serve_stream --output docs/img/serve.svg
	scripts/terminal_svg.py tests/cli/golden.txt candidates --output docs/img/candidates.svg
	@if [ -f $(RESULTS)/select-peers-python.json ]; then \
	  scripts/plot_bench.py $(RESULTS)/select-peers-python.json --peers \
	    --title "Sampling from Python on one core: microseconds of each library" \
	    --value ns/1000 --axis microseconds --others "what else is used from Python" \
	    --output docs/img/select-peers-python.svg --only cache=hot --only distribution=mid; fi

wheel: ## build the Python package into dist/
	@scripts/setup.sh build python
	@if command -v nvcc >/dev/null; then echo "wheel: with CUDA, by $$(command -v nvcc)"; \
	else echo "wheel: without CUDA, because there is no nvcc"; fi
	build/python-venv/bin/pip wheel --no-deps --no-build-isolation --no-index -w dist .

wheels: ## build the wheels of a release into dist/: the package and the command with all libraries inside
	@scripts/setup.sh build python
	@scripts/wheels.sh $(WHEEL_PYTHON)

release: ## build the command as one file that needs libc alone into dist/, with all that goes with it
	@scripts/setup.sh build
	@scripts/release.sh

image: release ## the same as a container image, an OCI archive in dist/
	@version=$$(sed -n 's/^project(Sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) && \
	  packaging/image.py build/static-release/sluice-$$version-linux-$$(uname -m)/sluice $$version \
	    dist/sluice-$$version-linux-$$(uname -m).oci.tar
	@packaging/sums.sh dist

docs: ## build the documentation site into build/docs/html (a minute; scripts/setup.sh docs comes first)
	@scripts/docs.sh

clean: ## remove build/ and dist/
	rm -rf build dist
