"""``python -m sluice.conformance --sampler NAME``: checks a sampler and prints its report card."""

import argparse
import sys
from importlib import metadata
from pathlib import Path

from sluice.conformance import NAMES, load, report, run
from sluice.conformance.checks import CHECKS, Size

PACKAGES = {"sluice": "sluice-llm", "flashinfer": "flashinfer-python"}


def version_of(name):
    package = name.partition(":")[0].partition(".")[0]
    try:
        return metadata.version(PACKAGES.get(package, package))
    except metadata.PackageNotFoundError:
        return ""


def arguments(given):
    parser = argparse.ArgumentParser(
        prog="python -m sluice.conformance", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Checks a sampler: exact sets, ties, masks, draws, seeds, batches.",
        epilog="The exit status is 1 when a check fails. checks: "
               + ", ".join(name for name, _, _ in CHECKS))
    parser.add_argument("--sampler", required=True, metavar="NAME",
                        help=f"{', '.join(NAMES)}, or MODULE:FUNCTION")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the card as JSON, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="writes the card as a page, too")
    parser.add_argument("--vocab", type=int, default=Size().vocab, help="tokens of a row (512)")
    parser.add_argument("--quick", action="store_true", help="fewer rows and draws")
    options = parser.parse_args(given)
    if not 64 <= options.vocab <= 1 << 20:
        parser.error(f"vocab = {options.vocab} is not allowed: 64 to {1 << 20}")
    return options


def main(given=None):
    options = arguments(given)
    sys.path.insert(0, "")  # a function of a file in this folder
    size = Size(options.vocab, *((2, 4000) if options.quick else ()))
    try:
        sampler = load(options.sampler)
    except (ImportError, AttributeError, ValueError) as error:
        print(f"conformance: {options.sampler} cannot be loaded: {error}", file=sys.stderr)
        return 2
    is_seen = sys.stderr.isatty()

    def progress(name):
        if is_seen:
            print(f"\r\033[K{name} ...", end="", file=sys.stderr, flush=True)

    results = run(sampler, size, progress)
    if is_seen:
        print("\r\033[K", end="", file=sys.stderr)
    version = version_of(options.sampler)
    print(report.as_text(options.sampler, version, results))
    if options.json:
        options.json.write_text(report.as_json(options.sampler, version, size._asdict(), results))
    if options.html:
        options.html.write_text(report.as_html(options.sampler, version, results))
    return int(any(one.outcome == "fail" for one in results))


if __name__ == "__main__":
    sys.exit(main())
