"""`python -m resnets.experiments.worker`: one run of a sweep, in its own process.

It reads its job as JSON from standard input, writes the run or the failure as JSON to standard output, and everything
else to standard error.
"""

from __future__ import annotations

from resnets.interrupt import end_imports_on_ctrl_c

if __name__ == "__main__":
    end_imports_on_ctrl_c()

import json
import sys
from typing import Any

from resnets.chain import parse_network
from resnets.errors import UserError, describe_out_of_memory, is_out_of_memory
from resnets.recipe import Recipe
from resnets.user_code import import_file


def run_job(job: dict[str, Any]) -> dict[str, str]:
    """Train as the job says: the folder of the run, or why there is no result."""
    import torch

    from resnets.training.session import train

    torch.set_num_threads(max(1, torch.get_num_threads() // job["jobs"]))  # the processes share the cores
    sys.argv = job["argv"]  # the command of the user, for the config.json of the run
    for file in job["imports"]:
        import_file(file)
    model = parse_network(job["model"]) if isinstance(job["model"], dict) else job["model"]
    keywords = job["keywords"]
    if isinstance(recipe := keywords.get("recipe"), dict):
        keywords["recipe"] = Recipe(**recipe["recipe"])
    try:
        return {"run": str(train(model, **keywords).path)}
    except UserError as error:
        return {"failure": str(error)}
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        return {"failure": describe_out_of_memory(error)}


def main() -> int:
    out, sys.stdout = sys.stdout, sys.stderr
    job = json.loads(sys.stdin.read())
    try:
        answer = run_job(job)
    except KeyboardInterrupt:
        answer = {"failure": "stopped by Ctrl-C."}
    out.write(json.dumps(answer))
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
