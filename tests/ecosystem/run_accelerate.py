"""An Accelerate loop with a loader of either kind, resumed in each way that Accelerate offers."""

from __future__ import annotations

from typing import Any

import accelerate.data_loader
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
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

# skip      The loader is prepared; batches that were trained on are skipped.
# state     The loader is prepared and registered, so its state is in the checkpoint.
# alone     The loader is registered but not prepared: it stays the object that it is.


def main() -> None:
    args = arguments()
    DataLoader = loader_class(args.loader)  # noqa: N806 - as a program would import it
    if args.way != "alone":
        accelerate.data_loader.DataLoader = DataLoader
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7),
    )
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader: Any = DataLoader(
        Points(),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=args.num_workers,
        generator=torch.Generator().manual_seed(7),
    )
    validation = DataLoader(Points(10), batch_size=BATCH_SIZE, num_workers=args.num_workers)
    if args.way != "alone":
        loader, validation = accelerator.prepare(loader, validation)
    if args.way != "skip" and args.loader == "headrace":
        accelerator.register_for_checkpointing(loader)

    assert loader.__class__ is DataLoader

    step = args.resume or 0
    if args.resume:
        accelerator.load_state(str(args.folder / str(step)))
    log = Log(args.steps_file.with_suffix(f".rank-{accelerator.process_index}"), args.kill_at_step)
    first_epoch = step // len(loader)
    assert args.way == "skip" or args.loader == "torch" or loader.passes == first_epoch
    for epoch in range(first_epoch, EPOCHS):
        batches = loader
        if args.way != "alone":
            loader.set_epoch(epoch)
        if args.way == "skip" and args.resume and epoch == first_epoch:
            batches = accelerator.skip_first_batches(loader, step % len(loader))
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
            log.add(step, batch["id"], loss)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            if step % VALIDATE_EVERY_STEPS == 0:
                # On two ranks, batches that Accelerate filled up are cut to what there is.
                seen = [accelerator.gather_for_metrics(batch["id"]) for batch in validation]
                assert torch.cat(seen).tolist() == list(range(10))
            if step % SAVE_EVERY_STEPS == 0:
                accelerator.save_state(str(args.folder / str(step)))


if __name__ == "__main__":
    main()
