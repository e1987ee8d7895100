"""The loop of plain_loop.py with Hugging Face accelerate, in one process (docs/own-loop.md).

python examples/accelerate_loop.py runs/accelerate-loop

accelerate may place the model and step the optimizer. Not used, and why:
  accelerator.prepare(dataloader), shuffling, drop_last   units are drawn independently, by step.micro_batches
  accelerator.accumulate, gradient_accumulation_steps     a step's micro-batches are one sum, under one noise
  accelerator.clip_grad_norm_                             it scales the sum of all units; here each unit is clipped
  accelerator.backward, mixed_precision="fp16"            they scale losses; the clip norm would then mean something else
  accelerator.gather of losses, trackers                  a private loss must not leave
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import tacit
from tacit.engine import causal_losses

LENGTH = 48
PLAN = tacit.StepPlan(units=400, expected_batch=40, clip_norm=0.5, steps=20, epsilon=6.0, delta=1e-4, unit="note")


def made_up_notes(count: int) -> Tensor:
    """Stand-ins for private text, as bytes; note i is unit i, and all rows have one length."""
    draw = random.Random(0)
    complaints, drugs = ("cough", "fever", "headache", "back pain"), ("aspirin", "ibuprofen", "rest", "tea")
    texts = [f"Seen for {draw.choice(complaints)}, takes {draw.choice(drugs)}." for _ in range(count)]
    rows = [list(text.encode()[:LENGTH]) for text in texts]
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])


def main(folder: Path) -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, mixed_precision="no")
    ids = made_up_notes(380).to(accelerator.device)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    model = accelerator.unwrap_model(model)  # the model itself: wrappers hide what is to be clipped
    with tacit.PrivateSteps(model, PLAN, folder, present=len(ids)) as private:
        for step in private:
            for units, weights in step.micro_batches(16):
                with step.clipped():
                    batch = ids[units]
                    hidden = model.transformer(batch, attention_mask=(batch != 0).long()).last_hidden_state
                    losses = causal_losses(model.lm_head, hidden, batch.masked_fill(batch == 0, -100))
                    (losses * weights).sum().backward()  # and not accelerator.backward
            step.finish()
            optimizer.step()
    model.save_pretrained(folder / "private" / "model")
    certificate = tacit.certify(folder, folder / "private" / "model")
    print(f"epsilon {certificate.epsilon:.4f} at delta {certificate.delta:g} for every {certificate.unit}")
    print(certificate.statement)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/accelerate-loop"))
