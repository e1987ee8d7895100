"""A private training loop in plain PyTorch: a tiny GPT-2 on made-up notes, with a ledger and a certificate (docs/own-loop.md).

python examples/plain_loop.py runs/plain-loop
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import tacit
from tacit.engine import causal_losses

LENGTH = 48
PLAN = tacit.StepPlan(
    units=400,  # a public, round number; the true one is private
    expected_batch=40,
    clip_norm=0.5,
    steps=20,
    epsilon=6.0,  # the noise is solved for it
    delta=1e-4,
    unit="note",
)


def made_up_notes(count: int) -> list[str]:
    """Stand-ins for private text: one note is one privacy unit, note i is unit i."""
    draw = random.Random(0)
    complaints, drugs = ("cough", "fever", "headache", "back pain"), ("aspirin", "ibuprofen", "rest", "tea")
    return [f"Seen for {draw.choice(complaints)}, takes {draw.choice(drugs)}." for _ in range(count)]


def token_ids(texts: list[str]) -> Tensor:
    """Bytes as tokens, 0 as padding, all rows of one length: the shape of a unit's row never depends on another unit."""
    rows = [list(text.encode()[:LENGTH]) for text in texts]
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])


def main(folder: Path) -> None:
    torch.manual_seed(0)
    ids = token_ids(made_up_notes(380))
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    checkpoint = folder / "private" / "checkpoint.pt"
    with tacit.PrivateSteps(model, PLAN, folder, present=len(ids)) as private:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        if checkpoint.exists():  # weights and optimizer are the loop's to keep; the ledger keeps what was spent
            kept = torch.load(checkpoint, weights_only=True)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
        for step in private:  # the steps that are left
            for units, weights in step.micro_batches(16):
                with step.clipped():
                    batch = ids[units]
                    hidden = model.transformer(batch, attention_mask=(batch != 0).long()).last_hidden_state
                    # a mean over each row's own tokens: over the batch's, one note would change another's gradient
                    losses = causal_losses(model.lm_head, hidden, batch.masked_fill(batch == 0, -100))
                    (losses * weights).sum().backward()
            step.finish()  # now the gradients are there, with their noise
            optimizer.step()
            partial = checkpoint.with_suffix(".partial")  # a kill while it is written leaves the last one whole
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, partial)
            partial.replace(checkpoint)
    model.save_pretrained(folder / "private" / "model")
    certificate = tacit.certify(folder, folder / "private" / "model")
    print(f"epsilon {certificate.epsilon:.4f} at delta {certificate.delta:g} for every {certificate.unit}")
    print(certificate.statement)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/plain-loop"))
