import argparse
import pathlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from textgen.generate import Generator
from textgen.tokenizer import ByteBPE


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--prompt", default="the rain in the north")
    p.add_argument("--length", type=int, default=24)
    p.add_argument("--vocab", default=str(pathlib.Path(__file__).parent / "vocab.json"))
    p.add_argument("--eager", action="store_true")
    args = p.parse_args()

    torch.manual_seed(0)
    tok = ByteBPE(args.vocab)
    config = GPT2Config(vocab_size=tok.vocab_size, n_positions=128, n_embd=32, n_layer=2, n_head=2,
                        bos_token_id=tok.eos_id, eos_token_id=tok.eos_id)
    gen = Generator(GPT2LMHeadModel(config), tok, compile=not args.eager)
    print(repr(gen(args.prompt, args.length)))


if __name__ == "__main__":
    main()
