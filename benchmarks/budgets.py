"""Try scaled protocols of equal cost on a few rows, to choose the budget `hour` by how far apart they put them.

    python -m benchmarks.budgets [--only NAME,NAME] [--seed N]

The rows are three that the paper puts in a clear order. Each protocol trains identity shortcuts for about three
minutes on one core. Writes results/bench/budgets/<protocol>/<row>.json, as `resnets reproduce` would.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from resnets.experiments.budgets import Budget, Scale
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.plan import make_job
from resnets.experiments.results import RowFile
from resnets.experiments.running import Runner
from resnets.papers.rows import Row
from resnets.papers.tables import shortcut

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "bench" / "budgets"
PROTOCOLS = {
    "half-width": Scale(iterations=1400, batch=32, side=16, thinner=2, recipe=(("warmup", "140it"),)),
    "half-width-8x8": Scale(iterations=2500, batch=32, side=8, thinner=2, recipe=(("warmup", "250it"),)),
    "56-layers": Scale(iterations=900, batch=64, side=16, units=9, recipe=(("warmup", "90it"),)),
}
ROWS = (Row("resnet110"), shortcut("scale:0.5:0.5"), Row("preresnet110"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PROTOCOLS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    runner = Runner(ReproduceOptions(out=str(ROOT / "runs" / "budgets"), results=str(FOLDER)))
    for name in args.only.split(","):
        budget = Budget(name, "", 1, (PROTOCOLS[name],), imagenet=Scale())
        for row in ROWS:
            one = make_job(row, budget)
            if args.seed not in RowFile(FOLDER, one).runs:
                runner.run(one, args.seed)


if __name__ == "__main__":
    main()
