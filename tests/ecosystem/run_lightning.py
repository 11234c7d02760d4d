"""Lightning's Trainer with a loader of either kind, as any program would use it."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
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


class Module(lightning.LightningModule):
    """A linear classifier that logs what it is trained on."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.model = torch.nn.Linear(2, 2)
        self.lines = log

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.model(batch["x"]), batch["labels"])
        self.lines.add(self.global_step, batch["id"], loss)
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
        self.log("right", (self.model(batch["x"]).argmax(1) == batch["labels"]).float().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    args = arguments()
    DataLoader = loader_class(args.loader)  # noqa: N806 - as a program would import it
    training = DataLoader(
        Points(),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=args.num_workers,
        generator=torch.Generator().manual_seed(7),
    )
    validation = DataLoader(Points(10), batch_size=BATCH_SIZE, num_workers=args.num_workers)
    saving = ModelCheckpoint(
        args.folder, "{step}", every_n_train_steps=SAVE_EVERY_STEPS, save_top_k=-1
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        val_check_interval=VALIDATE_EVERY_STEPS,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **({"devices": 2, "strategy": "ddp"} if args.way == "two ranks" else {"devices": 1}),
    )
    saved = args.folder / f"step={args.resume}.ckpt" if args.resume else None
    log = Log(args.steps_file.with_suffix(f".rank-{trainer.global_rank}"), args.kill_at_step)
    trainer.fit(Module(log), training, validation, ckpt_path=saved)
    assert trainer.callback_metrics["right"] > 0.5
    assert type(trainer.train_dataloader) is DataLoader


if __name__ == "__main__":
    main()
