"""A small GAN whose discriminator is a ViT from transformers, with the R1 penalty."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from transformers import ViTConfig, ViTModel


class Generator(nn.Module):
    def __init__(self, latent=16, width=16, size=16):
        super().__init__()
        self.start = size // 4
        self.width = width
        self.fc = nn.Linear(latent, width * self.start ** 2)
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, padding=1), nn.SiLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(width, 3, 3, padding=1), nn.Tanh(),
        )

    def forward(self, z):
        return self.up(self.fc(z).view(-1, self.width, self.start, self.start))


class Discriminator(nn.Module):
    def __init__(self, size=16, hidden=16):
        super().__init__()
        config = ViTConfig(
            hidden_size=hidden, num_hidden_layers=1, num_attention_heads=2, intermediate_size=2 * hidden,
            image_size=size, patch_size=4, num_channels=3,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.score(self.vit(pixel_values=x).last_hidden_state[:, 0]).squeeze(-1)


def real_batches(n, size, count, seed):
    g = torch.Generator().manual_seed(seed)
    ramp = torch.linspace(-1, 1, size)
    for _ in range(count):
        phase = torch.rand(n, 3, 1, 1, generator=g) * 6.28
        yield torch.sin(3 * ramp.view(1, 1, -1, 1) + 2 * ramp.view(1, 1, 1, -1) + phase)


def r1_penalty(disc, real):
    real = real.detach().requires_grad_(True)
    score = disc(real)
    (grad,) = torch.autograd.grad(score.sum(), real, create_graph=True)
    return score, grad.square().flatten(1).sum(1).mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--r1-gamma", type=float, default=1.0)
    p.add_argument("--r1-every", type=int, default=2)
    p.add_argument("--size", type=int, default=16)
    p.add_argument("--compile-backend", default="inductor")
    args = p.parse_args()

    torch.manual_seed(0)
    gen, disc = Generator(size=args.size), Discriminator(args.size)
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.99))
    opt_d = torch.optim.Adam(disc.parameters(), lr=1e-3, betas=(0.0, 0.99))
    critic = torch.compile(disc, backend=args.compile_backend)

    for step, real in enumerate(real_batches(args.batch, args.size, args.steps, seed=1)):
        fake = gen(torch.randn(args.batch, 16))
        if step % args.r1_every == 0:
            score, penalty = r1_penalty(critic, real)
            d_loss = args.r1_gamma / 2 * args.r1_every * penalty
        else:
            score, d_loss = critic(real), 0.0
        d_loss = d_loss + F.softplus(-score).mean() + F.softplus(critic(fake.detach())).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        g_loss = F.softplus(-critic(gen(torch.randn(args.batch, 16)))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        print(f"step {step} d {d_loss.item():.4f} g {g_loss.item():.4f}")


if __name__ == "__main__":
    main()
