"""Post-training quantisation of a small Llama: observe the activations, then torchao's quantize_."""
import argparse
import logging
import pathlib

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

from quant.llama import tiny
from quant.observers import observe, strip

logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)


def batches(path, size, length):
    rows = []
    for line in path.read_text().splitlines():
        ids = [ord(c) - 32 for c in line[:length].ljust(length)]
        rows.append(ids)
    for i in range(0, len(rows) - size + 1, size):
        yield torch.tensor(rows[i:i + size])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__).parent / "calibration.txt")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=32)
    p.add_argument("--observe", default="down_proj", help="comma-separated names of Linear modules")
    p.add_argument("--tolerance", type=float, default=0.004)
    args = p.parse_args()

    torch.manual_seed(0)
    model = tiny()
    observers = observe(model, args.observe.split(","))
    body = torch.compile(model.model, dynamic=False)

    last = {n: o.current.clone() for n, o in observers.items()}
    with torch.no_grad():
        for step, ids in enumerate(batches(args.text, args.batch, args.length)):
            body(input_ids=ids)
            for name, o in observers.items():
                torch.testing.assert_close(
                    o.previous, last[name],
                    msg=lambda m: f"{name}: previous range is not the range before step {step}\n{m}")
                last[name] = o.current.clone()
            drift = max(o.drift() for o in observers.values())
            print(f"step {step} drift {drift:.5f}")
            if drift < args.tolerance:
                break

        strip(model)
        ids = next(batches(args.text, args.batch, args.length))
        before = model(input_ids=ids, labels=ids).loss.item()
        quantize_(model, Int8WeightOnlyConfig())
        after = model(input_ids=ids, labels=ids).loss.item()
    print(f"loss {before:.4f} -> {after:.4f} with int8 weights")


if __name__ == "__main__":
    main()
