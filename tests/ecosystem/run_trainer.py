"""Hugging Face's Trainer with a loader of either kind in the place of torch's."""

from __future__ import annotations

from typing import Any

import accelerate.data_loader
import torch
from task import (
    BATCH_SIZE,
    EPOCHS,
    SAVE_EVERY_STEPS,
    VALIDATE_EVERY_STEPS,
    Log,
    Points,
    arguments,
    loader_class,
)
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    """A linear classifier that logs what it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(2, 2)
        self.trainer: Trainer | None = None
        self.log: Log | None = None

    def forward(self, x: torch.Tensor, labels: torch.Tensor, id: torch.Tensor) -> dict[str, Any]:
        logits = self.model(x)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        if self.training:
            assert self.trainer is not None
            assert self.log is not None
            self.log.add(self.trainer.state.global_step, id, loss)
        return {"loss": loss, "logits": logits}


def main() -> None:
    args = arguments()
    # The Trainer has Accelerate make its loaders.
    accelerate.data_loader.DataLoader = loader_class(args.loader)
    model = Model()
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=str(args.folder),
            per_device_train_batch_size=BATCH_SIZE,
            num_train_epochs=EPOCHS,
            learning_rate=0.05,
            eval_strategy="steps",
            eval_steps=VALIDATE_EVERY_STEPS,
            save_steps=SAVE_EVERY_STEPS,
            dataloader_num_workers=args.num_workers,
            dataloader_pin_memory=False,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Points(),
        eval_dataset=Points(10),
    )
    model.trainer = trainer
    model.log = Log(args.steps_file.with_suffix(".rank-0"), args.kill_at_step)
    kind = type(trainer.get_train_dataloader().base_dataloader)  # type: ignore[attr-defined]
    assert kind is loader_class(args.loader)
    saved = str(args.folder / f"checkpoint-{args.resume}") if args.resume else None
    trainer.train(resume_from_checkpoint=saved)


if __name__ == "__main__":
    main()
