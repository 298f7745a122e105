"""A minimal unconditional pipeline around diffusers' UNet2DModel."""
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler, UNet2DModel

SCHEDULERS = {"euler": EulerDiscreteScheduler, "ddim": DDIMScheduler}


def build_unet(size, channels=3, num_class_embeds=None):
    return UNet2DModel(
        sample_size=size, in_channels=channels, out_channels=channels,
        layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8, num_class_embeds=num_class_embeds,
    )


class Pipeline:
    def __init__(self, unet, scheduler):
        self.unet, self.scheduler = unet.eval(), scheduler

    def denoise_one(self, sample, t, labels, guidance):
        model_in = self.scheduler.scale_model_input(sample, t)
        both = torch.cat([model_in, model_in])
        noise = self.unet(both, t, class_labels=labels).sample
        uncond, cond = noise.chunk(2)
        noise = uncond + guidance * (cond - uncond)
        return self.scheduler.step(noise, t, sample).prev_sample

    @torch.no_grad()
    def __call__(self, label, steps, guidance, generator, size, channels=3, n=1):
        self.scheduler.set_timesteps(steps)
        sample = torch.randn(n, channels, size, size, generator=generator)
        sample = sample * self.scheduler.init_noise_sigma
        null = self.unet.config.num_class_embeds - 1
        labels = torch.tensor([null] * n + [label] * n)
        for t in self.scheduler.timesteps:
            sample = self.denoise_one(sample, t, labels, guidance)
        return (sample / 2 + 0.5).clamp(0, 1)
