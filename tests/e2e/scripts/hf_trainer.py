"""A real Hugging Face Trainer on a tiny model: evaluation, checkpoints, loader workers.

Knows nothing of this project. Ends by itself after about `--seconds`. Needs torch, transformers and
accelerate.
"""

import argparse
import random
import time

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Sentences(Dataset):
    """Numbers that repeat, so that there is something to learn."""

    def __init__(self, count, length, item_s):
        self.count, self.length, self.item_s = count, length, item_s

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.item_s)
        start = random.Random(index).randrange(50)
        ids = torch.tensor([(start + i) % 50 for i in range(self.length)])
        return {"input_ids": ids, "labels": ids}


class StopInTime(TrainerCallback):
    """Ends training when its time is over, and pauses once in the middle when asked to."""

    def __init__(self, seconds, pause_s):
        self.end_s, self.pause_s = time.monotonic() + seconds, pause_s
        self.pause_at_s = time.monotonic() + seconds / 2

    def on_step_end(self, args, state, control, **kwargs):
        now_s = time.monotonic()
        if self.pause_s and now_s > self.pause_at_s:
            time.sleep(self.pause_s)
            self.pause_s = 0.0
        if now_s > self.end_s:
            control.should_training_stop = True


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--dir", default="hf-out")
    parser.add_argument("--workers", type=int, default=0, help="of the data loader")
    parser.add_argument("--item-s", type=float, default=0.0, help="time to read one item")
    parser.add_argument("--eval-steps", type=int, default=100)
    parser.add_argument("--eval-items", type=int, default=400)
    parser.add_argument("--save-steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--no-bar", action="store_true")
    parser.add_argument("--pause-s", type=float, default=0.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = GPT2Config(
        vocab_size=64, n_positions=64, n_embd=args.width, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            args.dir, max_steps=10_000_000, per_device_train_batch_size=8, logging_steps=20,
            eval_strategy="steps", eval_steps=args.eval_steps, save_steps=args.save_steps,
            save_total_limit=2, report_to=[], use_cpu=True, disable_tqdm=args.no_bar,
            dataloader_num_workers=args.workers, dataloader_persistent_workers=args.workers > 0,
        ),
        train_dataset=Sentences(100_000, 48, args.item_s),
        eval_dataset=Sentences(args.eval_items, 48, 0.0),
        callbacks=[StopInTime(args.seconds, args.pause_s)],
    )  # fmt: skip
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
