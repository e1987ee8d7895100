"""transformers' Trainer with private steps: a subclass that leaves it optimizer, schedule and callbacks (docs/own-loop.md).

python examples/trainer.py runs/trainer

What Trainer must not do, and what is set against it:
  its data loader (shuffled, drop_last, skipped on resume)   get_train_dataloader gives private steps; ignore_data_skip
  gradient_accumulation_steps                                1: a step's micro-batches are one sum, under one noise
  max_grad_norm                                              0: it clips the sum; here each unit is clipped
  fp16 (GradScaler), torch_compile, several devices          not used: the clipper needs the plain model and plain losses
  logging and reporting the loss                             training_step returns 0: a private loss must not leave
  load_best_model_at_end, early stopping by private losses   not used: what is chosen by private text needs its own budget
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import tacit
from tacit.engine import causal_losses

LENGTH = 48
PLAN = tacit.StepPlan(units=400, expected_batch=40, clip_norm=0.5, steps=20, epsilon=6.0, delta=1e-4, unit="note")


class StepLoader:
    """What Trainer takes for a data loader: each of its batches is a private step."""

    def __init__(self, private: tacit.PrivateSteps) -> None:
        self._private = private

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({"step": step} for step in self._private)


class PrivateTrainer(Trainer):
    """A Trainer whose gradients come from private steps.

    Args:
        private: the steps, open.
        ids: the notes, one a row.
    """

    def __init__(self, private: tacit.PrivateSteps, ids: Tensor, **options: Any) -> None:
        super().__init__(**options)
        asked = self.args.gradient_accumulation_steps, self.args.max_grad_norm, self.args.n_gpu > 1, self.args.fp16
        if asked != (1, 0.0, False, False):
            raise tacit.TacitError(
                "private steps need gradient_accumulation_steps=1, max_grad_norm=0, one device, no fp16"
            )
        self._private = private
        self._ids = ids

    def get_train_dataloader(self) -> Any:
        return StepLoader(self._private)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        model.train()
        step = inputs["step"]
        for units, weights in step.micro_batches(16):
            with step.clipped():
                batch = self._ids[units].to(self.args.device)
                hidden = model.transformer(batch, attention_mask=(batch != 0).long()).last_hidden_state
                losses = causal_losses(model.lm_head, hidden, batch.masked_fill(batch == 0, -100))
                (losses * weights).sum().backward()
        step.finish()
        return torch.zeros((), device=self.args.device)  # a public constant in place of the private loss

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # counted from the batch, which is private


def made_up_notes(count: int) -> Tensor:
    """Stand-ins for private text, as bytes; note i is unit i, and all rows have one length."""
    draw = random.Random(0)
    complaints, drugs = ("cough", "fever", "headache", "back pain"), ("aspirin", "ibuprofen", "rest", "tea")
    texts = [f"Seen for {draw.choice(complaints)}, takes {draw.choice(drugs)}." for _ in range(count)]
    rows = [list(text.encode()[:LENGTH]) for text in texts]
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])


def main(folder: Path) -> None:
    torch.manual_seed(0)
    ids = made_up_notes(380)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    with tacit.PrivateSteps(model, PLAN, folder, present=len(ids)) as private:
        arguments = TrainingArguments(
            output_dir=str(folder / "private" / "trainer"),  # private: its files are not looked through
            max_steps=private.left,
            learning_rate=3e-3,
            gradient_accumulation_steps=1,
            max_grad_norm=0.0,
            ignore_data_skip=True,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        PrivateTrainer(private, ids, model=model, args=arguments).train()
    model.save_pretrained(folder / "private" / "model")
    certificate = tacit.certify(folder, folder / "private" / "model")
    print(f"epsilon {certificate.epsilon:.4f} at delta {certificate.delta:g} for every {certificate.unit}")
    print(certificate.statement)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/trainer"))
