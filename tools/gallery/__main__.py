"""Try the networks of others and write the results, from which docs/gallery.md is generated.

    python -m tools.gallery FOLDER.. [--only NAME ..] [--timed]

Files are found below the folders by their SHA-256. A network whose file is missing keeps its row. With --timed the
engine of the file's format runs by turns with cvm: run nothing else on the machine then.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools.gallery.measure import measured
from tools.gallery.networks import found_files, networks
from tools.gallery.results import RESULTS, rows


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--timed", action="store_true")
    options = parser.parse_args(arguments)
    every = networks()
    unknown = sorted(set(options.only) - {network.name for network in every})
    if unknown:
        parser.error(f"there is no network {', '.join(unknown)}")
    files = found_files(every, options.folders)
    known = rows()
    for network in every:
        if network.name in files and (not options.only or network.name in options.only):
            known[network.name] = measured(network, files[network.name], options.timed)
            print(json.dumps(known[network.name]), flush=True)
            ordered = [known[other.name] for other in every if other.name in known]
            RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, ordered)) + "\n]\n", encoding="utf-8")
    missing = [network.name for network in every if network.name not in files]
    if missing:
        print(f"no file for {', '.join(missing)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
