"""`make torture`: many generated cases; what was tried and what failed goes to results/reliability.json.

python tests/torture --cases 100000 --first 0
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest has it

import torch  # noqa: E402
from attention_cases import torture  # noqa: E402
from rich.progress import track  # noqa: E402

from bayesattn.files import write_atomically  # noqa: E402
from bayesattn.runs.single import commit  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description="Generated cases of attention: no NaN, no leak, no wrong shape.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case: another number, other cases")
    parser.add_argument("--results", type=Path, default=Path("results/reliability.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    bar = iter(track(range(arguments.cases), description="attention"))
    tally = torture(range(arguments.first, arguments.first + arguments.cases), tick=lambda: next(bar))
    kept = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
    kept["attention"] = {
        "command": f"make torture (python tests/torture --cases {arguments.cases} --first {arguments.first})",
        "tried": tally.tried,
        "wrong": len(tally.wrong),
        "first": arguments.first,
        "processor_seconds": round(time.process_time() - start),
        "commit": commit(),
        "machine": f"{platform.machine()}, torch {torch.__version__}, 1 thread",
    }
    write_atomically(arguments.results, json.dumps(kept, indent=2) + "\n")
    for words in tally.wrong.values():
        print(words)
    print(f"{tally.tried} cases, {len(tally.wrong)} wrong; kept in {arguments.results}.")
    sys.exit(1 if tally.wrong else 0)


if __name__ == "__main__":
    main()
