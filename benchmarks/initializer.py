"""What the initial weights of a narrow BERT are worth: held-out public text, from the same keys, after so many public steps.

Run ``python benchmarks/initializer.py OUT [--config recipes/bert-public.yaml] [--steps 500 1000 2000] [--keys 2]``. Each line is two
whole runs of the configuration, with ``initializer: standard`` and ``scaled``. Runs of one key have the same held-out text, the same
rows in the same order and the same masks. Runs that are done are not done again.

perplexity    of masked pieces of held-out public text, beside the unigram's
accuracy      of the likeliest piece
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit.config import RunConfig, load_config
from tacit.files import read_json
from tacit.pipeline.stages import run
from tacit.progress import TerminalReporter
from tacit.reproduce.place import with_public_key
from tacit.runs.folder import RunFolder

INITIALIZERS = ("standard", "scaled")


def measured(config: RunConfig, initializer: str, steps: int, key: int, out: Path) -> dict[str, dict[str, float]]:
    """The public scores of one run, which is done first unless it is there."""
    folder = RunFolder(out / f"{initializer}-{steps}-{key}")
    (phase,) = config.phases
    changed = config.model_copy(
        update={
            "run": str(folder.root),
            "model": config.model.model_copy(update={"initializer": initializer}),
            "phases": (phase.model_copy(update={"steps": steps}),),
        }
    )
    run(with_public_key(changed, f"initializer {key}"), TerminalReporter())
    return read_json(folder.private / "evaluation.json")["public"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--config", type=Path, default=Path("recipes/bert-public.yaml"))
    parser.add_argument("--steps", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--keys", type=int, default=2)
    options = parser.parse_args()
    config = load_config(options.config)
    print(
        "| steps | key | unigram | standard | scaled | accuracy, standard | scaled |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for steps in options.steps:
        for key in range(1, options.keys + 1):
            both = [measured(config, initializer, steps, key, options.out) for initializer in INITIALIZERS]
            scores = [values["released model"] for values in both]
            cells = [str(steps), str(key), f"{both[0]['unigram']['perplexity']:.0f}"]
            cells += [f"{score['perplexity']:.1f}" for score in scores] + [
                f"{score['accuracy']:.3f}" for score in scores
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
