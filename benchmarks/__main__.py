"""``make bench``: run benchmarks and write their tables to benchmarks/results/.

python -m benchmarks              # those that need nothing but this project
python -m benchmarks rollouts     # some, by name; each module says what it needs
python -m benchmarks sandbox -- --problems HumanEval.jsonl.gz     # with options of its own
"""

import argparse
import subprocess
import sys

ALONE = ("pipeline",)
"""Benchmarks that need no peers; the others install peers into environments of their own."""


def main() -> int:
    """Run the benchmarks named on the command line; 0 if all succeeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ALONE), help="modules of this package")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = sys.argv[end + 1 :]
    failed = [
        name
        for name in parser.parse_args(sys.argv[1:end]).names
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False).returncode
    ]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
